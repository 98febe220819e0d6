//! If there are rate limits, replicas exchange once a second how many requests and bytes clients have used.
//!
//! A replica adds one entry to a short stream and reads the entries of the others, in one script. A replica that is behind
//! skips the entries from before the last ten seconds: older usage no longer matters for a rate limit. An answer is
//! bounded, so that one exchange cannot delay the changes of all replicas; the next exchange continues after it. The
//! entries contain addresses of clients, so Redis stores each for a minute at most.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use libris::cluster::Client;
use libris::wire::http::ClientUsage;
use redis::{RedisResult, Script};

use crate::RedisCluster;
use crate::connection::RedisConnection;

/// The name in the line with the sum of all clients.
const ALL_CLIENTS: &str = "*";

/// The limits of one answer. The last entry may exceed the limit of bytes: it has 4,096 clients at most.
const ANSWER_ENTRIES: usize = 1_024;
const ANSWER_BYTES: usize = 1 << 20;

/// The approximate largest number of entries in the stream.
const STREAM_LENGTH: usize = 16_384;

/// Adds the entry `ARGV[2]`, unless it is empty. Returns the id of the last entry that was read, and the entries of other
/// replicas after the id `ARGV[3]` and within the last ten seconds, at most about `ARGV[4]` entries and `ARGV[5]` bytes.
/// An entry is removed by the first addition after 30 seconds, by the limit of `ARGV[6]` entries, or expires with the
/// stream 30 seconds after the last addition.
static EXCHANGE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r#"
local time = redis.call('TIME')
local function seconds_ago(seconds) return string.format('%.0f', (time[1] - seconds) * 1000) .. '-0' end
if ARGV[2] ~= '' then
    redis.call('XADD', KEYS[1], 'MINID', '=', seconds_ago(30), '*', 'r', ARGV[1], 'd', ARGV[2])
    redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[6])
    redis.call('PEXPIRE', KEYS[1], 30000)
end
local function milliseconds(id) return tonumber(string.match(id, '^%d+')) end
local last = ARGV[3]
if last == '' or milliseconds(last) < milliseconds(seconds_ago(10)) then last = seconds_ago(10) end
local answer = {last}
local PAGE = 64
local read, bytes = 0, 0
repeat
    local page = redis.call('XRANGE', KEYS[1], '(' .. answer[1], '+', 'COUNT', PAGE)
    for _, entry in ipairs(page) do
        answer[1] = entry[1]
        if entry[2][2] ~= ARGV[1] then
            answer[#answer + 1] = entry[2][4]
            bytes = bytes + string.len(entry[2][4])
            if bytes >= tonumber(ARGV[5]) then return answer end
        end
    end
    read = read + #page
until #page < PAGE or read >= tonumber(ARGV[4])
return answer
"#,
    )
});

impl RedisCluster {
    /// Publishes the usage of clients at this replica. Returns their usage at the other replicas since the last
    /// exchange.
    pub(crate) async fn exchange(&self, used: &[ClientUsage]) -> RedisResult<Vec<ClientUsage>> {
        let mut last = self.last_usage.lock().await;
        let mut exchange = EXCHANGE.key(self.shared.keys.usage());
        exchange.arg(&self.shared.replica).arg(encode(used)).arg(&*last);
        exchange.arg(ANSWER_ENTRIES).arg(ANSWER_BYTES).arg(STREAM_LENGTH);
        let query = async |mut connection: RedisConnection| connection.invoke(&exchange).await;
        let answer: Vec<String> = self.queries.run(&self.shared.connector, query).await?;
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
