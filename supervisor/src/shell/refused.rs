//! Why the pool's socket refuses a connection or a message, or ends a connection. Jobs that the core refuses are not
//! among them.

use crate::refusals::reasons;

reasons! {
    /// The name is the label of the metric.
    enum Refused says "clients are refused" {
        Arenas = "arenas",
        ConnectionsFull = "connections_full",
        ConnectionsOwn = "connections_own",
        Handshake = "handshake",
        Order = "order",
        OrdersRate = "orders_rate",
        Protocol = "protocol",
        Unread = "unread",
        User = "user",
    }
}
