//! If there are rate limits, replicas exchange once a second how many requests and bytes clients have used.
//!
//! A replica adds one entry to a short stream and reads the entries of the others, in one script. At its first exchange
//! and after a failed one, a replica reads only the entries of the last ten seconds: older usage no longer matters for
//! a rate limit. The entries contain addresses of clients, so Redis stores each for a minute at most.

use std::sync::atomic::Ordering;

use libris::cluster::Client;
use libris::wire::http::ClientUsage;
use redis::RedisResult;

use crate::RedisCluster;

/// The name in the line with the sum of all clients.
const ALL_CLIENTS: &str = "*";

/// Adds the entry `ARGV[2]`, unless it is empty. Returns the id of the last entry, and the entries of other replicas
/// after the id `ARGV[3]`. If `ARGV[3]` is empty, returns the entries of the last ten seconds. An entry is removed by
/// the first addition after 30 seconds, or expires with the stream 30 seconds after the last addition.
const EXCHANGE: &str = r#"
local function seconds_ago(seconds)
    local time = redis.call('TIME')
    return string.format('%.0f', (time[1] - seconds) * 1000) .. '-0'
end
if ARGV[2] ~= '' then
    redis.call('XADD', KEYS[1], 'MINID', '=', seconds_ago(30), '*', 'r', ARGV[1], 'd', ARGV[2])
    redis.call('PEXPIRE', KEYS[1], 30000)
end
local last = ARGV[3]
if last == '' then last = seconds_ago(10) end
local answer = {last}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. last, '+')) do
    answer[1] = entry[1]
    if entry[2][2] ~= ARGV[1] then answer[#answer + 1] = entry[2][4] end
end
return answer
"#;

impl RedisCluster {
    /// Publishes the usage of clients at this replica. Returns their usage at the other replicas since the last
    /// exchange.
    pub(crate) async fn exchange(&self, used: &[ClientUsage]) -> RedisResult<Vec<ClientUsage>> {
        let mut connection = self.query_connection().await?;
        let mut last = self.last_usage.lock().await;
        let mut exchange = redis::cmd("EVAL");
        exchange.arg(EXCHANGE).arg(1).arg(self.shared.keys.usage()).arg(&self.shared.replica);
        exchange.arg(encode(used)).arg(&*last);
        let answer: RedisResult<Vec<String>> = connection.query(&exchange).await;
        if answer.is_err() {
            self.queries.lock().await.take();
            last.clear();
        }
        let answer = answer?;
        let Some((newest, entries)) = answer.split_first() else { return Ok(Vec::new()) };
        last.clone_from(newest);
        let elsewhere: Vec<_> = entries.iter().flat_map(|entry| entry.lines()).filter_map(decode).collect();
        let requests = elsewhere.iter().filter(|used| used.client.is_none()).map(|used| used.requests);
        self.shared.used_elsewhere.fetch_add(requests.sum::<u64>() as usize, Ordering::Relaxed);
        Ok(elsewhere)
    }
}

/// Encodes usage as the lines of an entry. Omits clients that have no shared name.
fn encode(used: &[ClientUsage]) -> String {
    let line = |used: &ClientUsage| {
        let name = match used.client {
            Some(client) => client.shared_name()?,
            None => ALL_CLIENTS.to_owned(),
        };
        Some(format!("{name} {} {}", used.requests, used.bytes))
    };
    used.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Decodes a line of an entry; `None` if it is malformed.
fn decode(line: &str) -> Option<ClientUsage> {
    let mut parts = line.split(' ');
    let (name, requests, bytes) = (parts.next()?, parts.next()?, parts.next()?);
    let client = match name {
        ALL_CLIENTS => None,
        name => Some(Client::from_shared_name(name)?),
    };
    Some(ClientUsage { client, requests: requests.parse().ok()?, bytes: bytes.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use libris::cluster::Client;
    use libris::wire::http::ClientUsage;

    #[test]
    fn usage_survives_encoding() {
        let used = [
            ClientUsage { client: None, requests: 7, bytes: u64::MAX },
            ClientUsage { client: Some(Client::at([127, 0, 0, 1].into())), requests: 0, bytes: 1 },
        ];
        let text = encode(&used);
        assert_eq!(text.lines().filter_map(decode).collect::<Vec<_>>(), used);
        let unknown = ClientUsage { client: Some(Client::default()), requests: 1, bytes: 1 };
        assert_eq!(encode(&[unknown]), "");
        for line in ["", "*", "* 1", "* x 1", "zz 1 1", "* -1 1"] {
            assert_eq!(decode(line), None, "{line}");
        }
    }
}
