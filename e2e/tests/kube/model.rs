//! A model by its name, from a hub that is a pod of the cluster: fetched once to a volume before any worker is there, gone
//! on with after a crash, replaced under traffic, and gone back to.

use crate::plugin::Person;
use crate::stand::hub::{CLAIM, ENDPOINT, Hub};
use crate::stand::{Site, Stand, chat, deployment};
use anyhow::{Result, ensure};
use pd_e2e::binaries::smollm2;
use pd_e2e::fleet::eventually;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const REPO: &str = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const TOKEN: &str = "hf_of_the_gated_model";
/// So slow that a fetch of 98 MB takes 16 s.
const BYTES_PER_SECOND: u32 = 6_000_000;
const SOON: Duration = Duration::from_secs(90);
const SETTLED: Duration = Duration::from_secs(180);

#[tokio::test]
async fn a_model_by_its_name_is_fetched_once_and_replaced_under_traffic() -> Result<()> {
    let mut hub = Hub::new(BYTES_PER_SECOND)?;
    hub.token = Some(TOKEN);
    let weights = smollm2();
    hub.folders.extend(weights.parent().map(Path::to_owned));
    // Two branches of a repository, whose weights are the same.
    for branch in ["main", "v2"] {
        let folder = hub.root().join(branch);
        fs::create_dir(&folder)?;
        fs::write(folder.join("README.md"), branch)?;
        symlink(&weights, folder.join(FILE))?;
        hub.repos
            .push(format!("{REPO}@{branch}={}", folder.display()));
    }
    let open = format!("overrides.cachePaths={{{}}}", hub.root().display());
    let site = Site {
        settings: vec![open],
        ..Site::default()
    };
    let mut stand = Stand::installed(&site).await?;
    let result = lives(&mut stand, &hub).await;
    stand.end(result)
}

async fn lives(stand: &mut Stand, hub: &Hub) -> Result<()> {
    hub.apply(stand)?;
    is_refused_in_words(stand).await?;
    is_fetched(stand).await?;
    is_packed(stand, hub.root()).await?;
    is_shared(stand).await?;
    is_replaced(stand).await?;
    is_cleaned_up(stand, hub.root()).await?;
    is_kept_by_nodes(stand, hub.root()).await
}

/// Without a token the hub says no, and the status says what to do.
async fn is_refused_in_words(stand: &Stand) -> Result<()> {
    stand.apply(&by_name("smollm2", json!({})))?;
    says(stand, "or give a token that may read it").await?;
    ensure!(stand.workers("prefill")?.is_empty(), "a worker was made");
    let explained = Person::admin(stand).pd("explain smollm2")?;
    ensure!(
        explained.contains("is not on its volume yet, and workers are made when it is"),
        "{explained}"
    );
    let examined = Person::admin(stand).run("doctor")?;
    let found = String::from_utf8_lossy(&examined.stdout);
    eprintln!("$ kubectl pd doctor\n{found}");
    ensure!(
        !examined.status.success()
            && found.contains("BAD   the model of PDDeployment default/smollm2 cannot be"),
        "the model that cannot be fetched is not found"
    );
    stand.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub-token"},
        "stringData": {"token": TOKEN},
    }))
}

/// Fetched with progress, gone on with after its pod was killed, and then served.
async fn is_fetched(stand: &mut Stand) -> Result<()> {
    stand.edit(&json!({"spec": {"model": {"source": {"huggingFace": token_ref()}}}}))?;
    says(stand, "% of 98 MB").await?;
    reaches(stand, 30).await?;
    eprintln!("{}", stand.kubectl("get pdd,pods -o wide")?);
    ensure!(stand.workers("prefill")?.is_empty(), "a worker was made");
    let selector = "-l app.kubernetes.io/component=fetch";
    stand.kubectl(&format!("delete pod {selector} --grace-period=0 --force"))?;
    says(stand, "Serving").await?;
    stand.settled(1, 1).await?;
    eprintln!("{}", stand.kubectl("get pdd,pods -o wide")?);
    let asked = stand.asked_of_hub()?;
    eprintln!(
        "the hub was asked for bytes {} times: {asked:?}",
        asked.len()
    );
    ensure!(
        asked.len() == 2 && asked[0] == 0 && asked[1] > 0,
        "it was not gone on with: {asked:?}"
    );
    answers(stand).await?;
    Ok(())
}

/// An archive for support has what happened, and no key of it.
async fn is_packed(stand: &Stand, folder: &Path) -> Result<()> {
    let file = folder.join("bundle.tar.gz").display().to_string();
    Person::new(stand)
        .await?
        .pd(&format!("bundle smollm2 --output {file}"))?;
    let tar = |flags: &str| -> Result<String> {
        let output = Command::new("tar").args([flags, &file]).output()?;
        ensure!(output.status.success(), "tar {flags}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let names = tar("tzf")?;
    for part in [
        "deployment.json",
        "status.txt",
        "objects/Pod.json",
        "events.json",
        "router.log",
    ] {
        ensure!(names.contains(part), "{part} is not in it: {names}");
    }
    ensure!(!tar("xzOf")?.contains(TOKEN), "the token is in it");
    Ok(())
}

/// Another deployment on the same volume fetches nothing.
async fn is_shared(stand: &Stand) -> Result<()> {
    let before = stand.asked_of_hub()?.len();
    let mut second = by_name("second", token_ref());
    second["spec"]["pools"] = json!({"prefill": {"replicas": 0}, "decode": {"replicas": 0}});
    stand.apply(&second)?;
    let commit = || stand.kubectl("get pdd second -o jsonpath={.status.model.commit}");
    eventually(SOON, || async {
        ensure!(commit()?.len() == 40, "{}", commit()?);
        Ok(())
    })
    .await?;
    ensure!(
        stand.asked_of_hub()?.len() == before,
        "it was fetched twice"
    );
    stand.kubectl("delete pdd second --timeout=60s")?;
    Ok(())
}

/// Another branch takes the place of the first under traffic, one that is not there takes no place, and undo goes back
/// to the commit.
async fn is_replaced(stand: &mut Stand) -> Result<()> {
    let commit = "get pdd smollm2 -o jsonpath={.status.model.commit}";
    let first = stand.kubectl(commit)?;
    let traffic = stand.traffic();
    stand.edit(&revision("gone"))?;
    says(stand, "has no revision").await?;
    ensure!(
        stand.kubectl("get pdd smollm2")?.contains("True"),
        "it does not serve"
    );
    stand.edit(&revision("v2"))?;
    eventually(SETTLED, || async {
        let now = stand.kubectl(commit)?;
        ensure!(now.len() == 40 && now != first, "{now}");
        Ok(())
    })
    .await?;
    stand.settled(1, 1).await?;
    eprintln!("{}", stand.kubectl("get pdd,pods -o wide")?);
    Person::admin(stand).pd("rollout undo smollm2")?;
    eventually(SETTLED, || async {
        let now = stand.kubectl(commit)?;
        ensure!(now == first, "{now} and not {first}");
        Ok(())
    })
    .await?;
    stand.settled(1, 1).await?;
    let named =
        stand.kubectl("get pdd smollm2 -o jsonpath={.spec.model.source.huggingFace.revision}")?;
    ensure!(named == first, "undo names {named}");
    let tally = traffic.stop(SOON).await?;
    eprintln!("replaced and gone back to under traffic: {tally:?}");
    ensure!(tally.failures.is_empty() && tally.answered > 0, "{tally:?}");
    Ok(())
}

/// Before another model is fetched, commits go that no deployment has or can go back to; asked for or not, the others stay.
async fn is_cleaned_up(stand: &Stand, folder: &Path) -> Result<()> {
    let repo = format!("cache/models--{}", REPO.replace('/', "--"));
    let repo = folder.join(repo);
    let commits = || -> Result<usize> { Ok(fs::read_dir(repo.join("snapshots"))?.count()) };
    // As if they had been fetched the day before yesterday.
    let age = || -> Result<()> {
        let then = SystemTime::now() - Duration::from_hours(48);
        for record in fs::read_dir(repo.join(".pd-fetch"))? {
            let record = File::options().append(true).open(record?.path())?;
            record.set_modified(then)?;
        }
        Ok(())
    };
    let mut second = by_name("second", token_ref());
    let source = &mut second["spec"]["model"]["source"]["huggingFace"];
    source["cache"]["pvc"]["removeUnusedAfterDays"] = json!(1);
    source["revision"] = json!("v2");
    second["spec"]["pools"] = json!({"prefill": {"replicas": 0}, "decode": {"replicas": 0}});
    let fetched = async || -> Result<()> {
        stand.apply(&second)?;
        let commit = || stand.kubectl("get pdd second -o jsonpath={.status.model.commit}");
        eventually(SOON, || async {
            ensure!(commit()?.len() == 40, "{}", commit()?);
            Ok(())
        })
        .await
    };
    ensure!(commits()? == 2, "{} commits", commits()?);
    age()?;
    fetched().await?;
    ensure!(commits()? == 2, "the first deployment lost a commit");
    stand.kubectl("delete pdd second smollm2 --timeout=120s")?;
    age()?;
    fetched().await?;
    ensure!(commits()? == 1, "{} commits", commits()?);
    stand.kubectl("delete pdd second --timeout=60s")?;
    eprintln!("a commit that no deployment has was removed, and no other");
    Ok(())
}

/// The same model, which each node keeps: its workers fetch it before their engines start, and only those that come first.
async fn is_kept_by_nodes(stand: &mut Stand, folder: &Path) -> Result<()> {
    let kept = |path: &Path| {
        let mut source = token_ref();
        source["cache"] = json!({"hostPath": {"path": path}});
        by_name("smollm2", source)
    };
    stand.apply(&kept(Path::new("/var/lib/models")))?;
    says(stand, "InvalidSpec").await?;
    let why = stand.kubectl("get pdd smollm2 -o yaml")?;
    ensure!(why.contains("helm value overrides.cachePaths"), "{why}");
    let before = stand.asked_of_hub()?.len();
    stand.apply(&kept(&folder.join("nodes")))?;
    says(stand, "% of 98 MB").await?;
    reaches(stand, 20).await?;
    eprintln!("{}", stand.kubectl("get pdd,pods -o wide")?);
    let explained = Person::admin(stand).pd("explain smollm2")?;
    ensure!(
        explained.contains("is on its way to its workers' nodes"),
        "{explained}"
    );
    // As docs/troubleshooting/FetchingModel.md has it.
    let fetchers = "-l pdserve.io/deployment=smollm2,pdserve.io/replica -c fetch";
    let said = stand.kubectl(&format!("logs -n default {fetchers}"))?;
    ensure!(said.contains("fetching"), "{said}");
    stand.settled(1, 1).await?;
    says(stand, "Serving").await?;
    eprintln!("{}", stand.kubectl("get pdd,pods -o wide")?);
    let model = "get pdd smollm2 -o jsonpath={.status.model}";
    eprintln!("status.model: {}", stand.kubectl(model)?);
    answers(stand).await?;
    // Both nodes are one machine here, so one worker has waited for the other's fetch.
    let asked = stand.asked_of_hub()?.len() - before;
    ensure!(asked == 1, "its bytes were asked for {asked} times");
    let blobs = folder
        .join("nodes/default")
        .join(format!("models--{}", REPO.replace('/', "--")));
    ensure!(
        blobs.join("blobs").is_dir(),
        "nothing is in {}",
        blobs.display()
    );
    stand.edit(&json!({"spec": {"pools": {"decode": {"replicas": 2}}}}))?;
    stand.settled(1, 2).await?;
    let again = stand.asked_of_hub()?.len() - before;
    ensure!(again == asked, "what the node had was fetched again");
    Ok(())
}

fn by_name(name: &str, more: Value) -> Value {
    let mut object = deployment(1, 1);
    let mut source = json!({
        "repo": REPO, "file": FILE, "endpoint": ENDPOINT, "cache": {"pvc": {"claimName": CLAIM}},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        source[field.as_str()] = value.clone();
    }
    object["metadata"]["name"] = json!(name);
    object["spec"]["model"]["source"] = json!({"huggingFace": source});
    object
}

fn token_ref() -> Value {
    json!({"tokenSecretRef": {"name": "hub-token", "key": "token"}})
}

fn revision(revision: &str) -> Value {
    json!({"spec": {"model": {"source": {"huggingFace": {"revision": revision}}}}})
}

/// Waits until the Status column of the deployment says something.
async fn says(stand: &Stand, words: &str) -> Result<()> {
    eventually(SOON, || async {
        let said = stand.said()?;
        ensure!(said.contains(words), "{said:?} says nothing of {words:?}");
        eprintln!("Status: {said}");
        Ok(())
    })
    .await
}

/// Waits until so much of the model is there.
async fn reaches(stand: &Stand, wanted: u64) -> Result<()> {
    eventually(SOON, || async {
        let percent = percent(stand)?;
        ensure!(percent >= wanted, "{percent} %");
        Ok(())
    })
    .await
}

async fn answers(stand: &mut Stand) -> Result<()> {
    stand.find_service()?;
    let answer = chat(&stand.url).await?;
    let expected = &stand.said;
    ensure!(answer == *expected, "{answer:?} instead of {expected:?}");
    Ok(())
}

fn percent(stand: &Stand) -> Result<u64> {
    let model = "get pdd smollm2 -o jsonpath={.status.model.bytes}";
    let bytes: u64 = stand.kubectl(model)?.parse().unwrap_or(0);
    Ok(bytes * 100 / fs::metadata(smollm2())?.len())
}
