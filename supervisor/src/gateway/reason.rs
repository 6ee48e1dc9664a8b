//! Why the gateway refuses a request or a connection, or ends it.

use crate::refusals::reasons;

reasons! {
    /// The name is the label of the metric.
    enum Reason says "clients of the gateway are refused" {
        BodiesFull = "bodies_full",
        BodiesOwn = "bodies_own",
        ConnectionsFull = "connections_full",
        ConnectionsOwn = "connections_own",
        ConnectionsUnnamed = "connections_unnamed",
        ContentType = "content_type",
        Evicted = "evicted",
        Handshake = "handshake",
        Host = "host",
        Http2 = "http2",
        PagesFull = "pages_full",
        PagesOwn = "pages_own",
        RequestsFull = "requests_full",
        RequestsOwn = "requests_own",
        Scope = "scope",
        SlowAnswer = "slow_answer",
        SlowBody = "slow_body",
        SlowHead = "slow_head",
        Token = "token",
        User = "user",
        WebPage = "web_page",
    }
}
