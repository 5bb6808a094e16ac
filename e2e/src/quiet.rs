//! Whether a worker holds nothing: what every request must leave behind, however it ended.

use crate::client::Client;
use crate::fleet::eventually;
use crate::metrics::Metrics;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Everything a request held is back this soon after its end.
const QUIET_WITHIN: Duration = Duration::from_secs(10);
/// Gauges that are 0 when no request is there.
const GAUGES: [&str; 5] = [
    "pdserve_req_pool_rows_used",
    "pdserve_metadata_rows_used",
    "pdserve_rooms_in_flight",
    "pdserve_num_running_reqs",
    "pdserve_num_queue_reqs",
];

/// Waits until a worker holds no page, row, slot or room.
///
/// # Errors
/// What it still holds after the limit.
pub async fn quiet(client: &Client, url: &str) -> Result<()> {
    eventually(QUIET_WITHIN, || async {
        let metrics = Metrics::scrape(client, url).await?;
        for state in ["locked", "held", "quarantined"] {
            let label = format!("state=\"{state}\"");
            let pages = metrics.sum("pdserve_kv_pages", &[&label]);
            ensure!(pages == 0.0, "{pages} pages are {state} on {url}");
        }
        for name in GAUGES {
            ensure!(metrics.has(name), "{url} has no {name}");
            let value = metrics.sum(name, &[]);
            ensure!(value == 0.0, "{name} of {url} is {value}");
        }
        Ok(())
    })
    .await
}
