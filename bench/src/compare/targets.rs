//! The targets of the comparison.

use super::results::Results;
use crate::drive::Slice;
use crate::report::{Aim, Report};
use crate::servers::Server;

/// Adds to the report whether each measured target was met.
pub(super) fn judge(results: &Results, report: &mut Report) {
    let mut cost = |workload: &str, other: Server, aim: f64| {
        let ratio = results.ratio((workload, Server::Libris), (workload, other), Slice::cost);
        let name = format!("{workload}: computing ÷ {}", other.name());
        report.judge_if_measured(name, ratio, Aim::AtMost(aim));
    };
    for connections in ["http16", "http64"] {
        let mut cost = |what: &str, other, aim| cost(&format!("{connections}-{what}"), other, aim);
        cost("read-1k", Server::Limit, 1.25);
        cost("read-1k", Server::Rmcp, 0.4);
        cost("read-1m-text", Server::Limit, 1.2);
        cost("read-1m-blob", Server::Limit, 1.2);
        // The limit does not read and encode; what is within reach is what the limit that does both needs.
        cost("read-1m-text-cold", Server::Limit, 1.6);
        cost("read-1m-text-cold", Server::ReadingLimit, 1.1);
        cost("read-1m-text-cold", Server::Rmcp, 0.5);
        cost("read-1m-blob-cold", Server::Limit, 1.25);
        cost("read-1m-blob-cold", Server::ReadingLimit, 1.1);
        cost("read-1m-blob-cold", Server::Rmcp, 0.3);
        cost("list", Server::Limit, 1.4);
    }
    for workload in ["http16-read-1k", "legacy16-read-1k"] {
        let ratio = results.ratio((workload, Server::Gateway), (workload, Server::Libris), Slice::cost);
        let name = format!("{workload}, through a gateway from its cache: computing ÷ a local read");
        report.judge_if_measured(name, ratio, Aim::AtMost(1.3));
    }
    // mcp-proxy supports legacy clients only, and reaches the server behind it only over stdio, so Libris does the same here.
    // The computing time of that server, a process of its own, counts for neither.
    let workload = "legacy16-read-1k";
    let ratio = results.ratio((workload, Server::StdioGateway), (workload, Server::McpProxy), Slice::cost);
    let name =
        format!("{workload}, through a gateway to a server over stdio, uncached: computing ÷ mcp-proxy");
    report.judge_if_measured(name, ratio, Aim::AtMost(1.0));
    let ratio =
        results.ratio(("http16-call-1k", Server::Libris), ("http16-read-1k", Server::Libris), Slice::cost);
    report.judge_if_measured("http16-call-1k: computing ÷ http16-read-1k", ratio, Aim::AtMost(1.5));
    for what in ["read-1k", "list", "read-1m-text"] {
        let (legacy, modern) = (format!("legacy16-{what}"), format!("http16-{what}"));
        let ratio = results.ratio((&legacy, Server::Libris), (&modern, Server::Libris), Slice::cost);
        report.judge_if_measured(format!("{legacy}: computing ÷ {modern}"), ratio, Aim::AtMost(1.3));
    }
    for anonymous in ["http16-read-1k", "http16-read-1k-cold"] {
        let identified = format!("{anonymous}-identified");
        let ratio =
            results.ratio((&identified, Server::Embedded), (anonymous, Server::Embedded), Slice::cost);
        report.judge_if_measured(format!("{identified}: computing ÷ anonymous"), ratio, Aim::AtMost(1.15));
    }
    for anonymous in ["http16-read-1k", "http16-read-1k-cold"] {
        let authorized = format!("{anonymous}-authorized");
        let ratio = results.ratio((&authorized, Server::Libris), (anonymous, Server::Libris), Slice::cost);
        let name = format!("{authorized}, with a JWT and 100 rules: computing ÷ anonymous");
        report.judge_if_measured(name, ratio, Aim::AtMost(1.3));
    }
    let mut rate = |workload: &str, other: Server, aim: f64| {
        let ratio = results.ratio((workload, Server::Libris), (workload, other), Slice::rate);
        let name = format!("{workload}: requests/s ÷ {}", other.name());
        report.judge_if_measured(name, ratio, Aim::AtLeast(aim));
    };
    rate("stdio64-read-1k", Server::Limit, 0.5);
    rate("stdio64-read-1m-text", Server::Limit, 1.0);
    rate("stdio64-read-1m-blob", Server::Limit, 1.0);
    for way in ["http16", "stdio64"] {
        for other in [Server::Typescript, Server::Python] {
            rate(&format!("{way}-read-1k"), other, 25.0);
            rate(&format!("{way}-read-1m-text"), other, 10.0);
            rate(&format!("{way}-read-1m-blob"), other, 10.0);
        }
    }
}
