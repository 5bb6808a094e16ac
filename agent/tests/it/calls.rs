//! Calls that a request requires, in every form in which models write them: random weights call random tools, and each call
//! keeps to its schema. What a form cannot hold is refused.

mod tools;

use crate::agent::Agent;
use crate::constrained::{CHAT, chat, joined, without_ids};
use crate::disaggregation::both_legs;
use serde_json::{Value, json};
use tempfile::TempDir;
use tools::{Tool, random_tools};

/// A form, and what of it a chat template writes, by which agents know it.
const FORMS: [(&str, &str); 7] = [
    ("hermes", "<tool_call>{\"name\": …}</tool_call>"),
    ("qwen3_coder", "<tool_call><function=f><parameter=a>"),
    ("glm45", "<tool_call>f<arg_key>a</arg_key>"),
    ("pythonic", "[func_name1(a=1)]"),
    ("deepseekv3", "<｜tool▁call▁begin｜> ```json"),
    ("deepseekv31", "<｜tool▁call▁begin｜>"),
    ("kimi_k2", "<|tool_call_begin|><|tool_call_argument_begin|>"),
];

/// A chat template of a form, and the flags that name it.
struct Template {
    _folder: TempDir,
    path: String,
}

// === impl Template ===

impl Template {
    fn of(signs: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.jinja");
        let template = format!(
            "{{% for tool in tools or [] %}}{{{{ tool | tojson }}}}{{% endfor %}}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n\
             {{{{ m.content }}}}<|im_end|>\n{{% endfor %}}{{# {signs} #}}<|im_start|>assistant\n"
        );
        std::fs::write(&path, template).unwrap();
        Self {
            path: path.to_str().unwrap().to_owned(),
            _folder: folder,
        }
    }

    fn flags(&self, mode: Option<&'static str>) -> Vec<&str> {
        let mut flags = vec!["--chat-template", self.path.as_str()];
        if let Some(mode) = mode {
            flags.extend(["--disaggregation-mode", mode]);
            flags.extend(["--disaggregation-bootstrap-port", "0"]);
        }
        flags
    }
}

async fn ask(agent: &Agent, body: &Value) -> Value {
    let answer = agent.client.post(&agent.url(CHAT), body).await.ok();
    answer["choices"][0].clone()
}

/// The choice that the events of a stream add up to.
async fn ask_streamed(agent: &Agent, body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut events = agent.client.stream(&agent.url(CHAT), &body).await;
    joined(&events.all().await)
}

fn functions(choice: &Value) -> Vec<&Value> {
    let calls = choice["message"]["tool_calls"].as_array();
    let calls = calls.into_iter().flatten();
    calls.map(|call| &call["function"]).collect()
}

/// Each call is of one of the tools and keeps to its schema, and there is no text.
#[track_caller]
fn assert_valid(form: &str, tools: &[Tool], choice: &Value) {
    assert_eq!(
        choice["message"]["content"],
        Value::Null,
        "{form}: {choice}"
    );
    let calls = functions(choice);
    assert!(!calls.is_empty(), "{form}: {choice}");
    for call in calls {
        let tool = tools.iter().find(|tool| call["name"] == tool.name);
        let tool = tool.unwrap_or_else(|| panic!("{form}: {call}"));
        let arguments = call["arguments"].as_str().unwrap();
        let arguments =
            serde_json::from_str(arguments).unwrap_or_else(|why| panic!("{form}: {call}: {why}"));
        assert!(tool.holds(&arguments), "{form}: {call}: {}", tool.json());
    }
}

fn body(seed: u64, tools: &[Tool], extra: Value) -> Value {
    let tools: Vec<Value> = tools.iter().map(Tool::json).collect();
    let mut body = chat(
        seed,
        json!({"tools": tools, "tool_choice": "required", "max_tokens": 600}),
    );
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn required_calls_keep_to_their_schemas_in_every_form() {
    for (form, signs) in FORMS {
        let template = Template::of(signs);
        let agent = Agent::start(&template.flags(None)).await;
        assert!(
            agent
                .start_log
                .contains(&format!("tool_call_parser=\"{form}\"")),
            "{}",
            agent.start_log
        );
        let mut ended = 0;
        for seed in 0..24 {
            let tools = random_tools(seed);
            let body = body(seed, &tools, json!({"parallel_tool_calls": false}));
            let choice = ask(&agent, &body).await;
            if choice["finish_reason"] == "length" {
                continue;
            }
            ended += 1;
            assert_eq!(choice["finish_reason"], "tool_calls", "{form}: {choice}");
            assert_valid(form, &tools, &choice);
            assert_eq!(functions(&choice).len(), 1, "{form}: {choice}");
            let streamed = ask_streamed(&agent, &body).await;
            assert_eq!(streamed, json!(functions(&choice)), "{form}");
        }
        assert!(ended > 16, "{form}: {ended} of 24 answers ended");
    }
}

#[tokio::test]
async fn a_pair_makes_the_calls_that_one_worker_makes() {
    for (form, signs) in &FORMS[1..4] {
        let template = Template::of(signs);
        let flags = [None, Some("prefill"), Some("decode")].map(|mode| template.flags(mode));
        let (alone, prefill, decode) = tokio::join!(
            Agent::start(&flags[0]),
            Agent::start(&flags[1]),
            Agent::start(&flags[2])
        );
        for seed in 0..4 {
            let tools = random_tools(seed);
            let named = json!({"type": "function", "function": {"name": tools[1].name}});
            let mut body = body(
                seed,
                &tools,
                json!({"tool_choice": named, "parallel_tool_calls": false}),
            );
            let expected = ask(&alone, &body).await;
            body["bootstrap_host"] = json!("127.0.0.1");
            body["bootstrap_port"] = json!(prefill.bootstrap_port);
            body["bootstrap_room"] = json!(seed + 1);
            let (_, answer) = both_legs(&prefill, &decode, CHAT, &body).await;
            let choice = &answer["choices"][0];
            assert!(
                functions(choice)
                    .iter()
                    .all(|call| call["name"] == tools[1].name)
            );
            assert_eq!(without_ids(choice.clone()), without_ids(expected), "{form}");
        }
    }
}

#[tokio::test]
async fn several_calls_are_made_where_they_may() {
    for (form, signs) in FORMS {
        let template = Template::of(signs);
        let agent = Agent::start(&template.flags(None)).await;
        let tools = [Tool::bare("clock")];
        let mut most = 0;
        for seed in 0..4 {
            let choice = ask(&agent, &body(seed, &tools, json!({"max_tokens": 900}))).await;
            let calls = functions(&choice);
            assert!(
                calls.iter().all(|call| call["name"] == "clock"),
                "{form}: {choice}"
            );
            most = most.max(calls.len());
        }
        assert!(most > 1, "{form}");
    }
}

/// What their calls keep to is in the engine's tests: random weights write no mark by chance.
#[tokio::test]
async fn strict_tools_are_held_where_a_mark_begins_each_call() {
    for (form, signs) in FORMS {
        let template = Template::of(signs);
        let agent = Agent::start(&template.flags(None)).await;
        let mut tools = random_tools(1);
        tools[1].is_strict = true;
        let body = body(1, &tools, json!({"tool_choice": "auto", "max_tokens": 20}));
        let answer = agent.client.post(&agent.url(CHAT), &body).await;
        if form == "pythonic" {
            assert_eq!(answer.status, 400, "{form}");
            assert_eq!(answer.json()["error"]["param"], "tools[1].function.strict");
        } else {
            assert_eq!(answer.status, 200, "{form}: {}", answer.json());
        }
    }
}

#[tokio::test]
async fn what_a_form_cannot_hold_is_refused_with_its_place() {
    let refusal = |agent: &Agent, parameters: Value| {
        let tools =
            json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
        let body = chat(1, json!({"tools": tools, "tool_choice": "required"}));
        let (client, url) = (agent.client.clone(), agent.url(CHAT));
        async move {
            let answer = client.post(&url, &body).await;
            assert_eq!(answer.status, 400, "{}", answer.json());
            assert_eq!(answer.json()["error"]["param"], "tools");
            answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .to_owned()
        }
    };
    let looks = json!({"properties": {"a": {"type": "string", "pattern": "\\bx"}}});
    let recursive = json!({"properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}});
    for (signs, parameters, words) in [
        (FORMS[1].1, &looks, "at #/properties/a: pattern \\bx"),
        (FORMS[2].1, &looks, "at #/properties/a: pattern \\bx"),
        (
            FORMS[3].1,
            &recursive,
            "$ref #/$defs/n leads back to itself",
        ),
    ] {
        let template = Template::of(signs);
        let agent = Agent::start(&template.flags(None)).await;
        let message = refusal(&agent, parameters.clone()).await;
        assert!(message.contains(words), "{message}");
    }
}
