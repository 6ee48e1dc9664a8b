//! What clients of the gateway ask with a token of the scope `operate`. The gateway passes the token on and the
//! supervisor checks it: a gateway that was taken over cannot make one up, and has none before a client shows it one.

use gridpool_protocol::message::{Refusal, Reply, Secret, TokenOrder};

use super::super::audit::Order;
use super::super::status::Viewer;
use super::{Connection, Peer, Refused};

impl Connection {
    /// Carries an order out if its token allows it.
    pub(super) fn on_order_by_token(&self, request: u64, token: &Secret, asked: &TokenOrder) {
        let message = asked.as_message(request);
        let Some((_, order)) = Order::of(self.who, &message) else { return };
        match self.operator_of(token) {
            Ok(name) => self.carry_out((request, order.by_token(name)), message),
            Err(refusal) => {
                self.note(Refused::Order);
                // Guesses have the low limit of a connection that may give no orders.
                if self.shared.users.orders.take(self.who.account, false) {
                    order.ended(Err(&refusal));
                }
                self.reply(request, Err(refusal));
            }
        }
    }

    /// Lists the last deaths: whole for an operator, who may show it by a token.
    pub(super) fn on_deaths(&self, request: u64, after: u64, token: Option<&Secret>) {
        let viewer = self.peer.viewer(self.who.account);
        let is_whole = match token.map(|token| self.operator_of(token)) {
            Some(Ok(_)) => true,
            Some(Err(refusal)) => return self.reply(request, Err(refusal)),
            None => viewer == Viewer::All,
        };
        let deaths = self.shared.deaths.after(after, is_whole);
        self.say(request, Reply::Deaths(deaths));
    }

    /// The name of a token that may change the pool.
    fn operator_of(&self, token: &Secret) -> Result<String, Refusal> {
        let no = |why: &str| Err(Refusal::NotAllowed(why.to_owned()));
        if self.peer != Peer::Gateway {
            return no("only the pool's own gateway passes tokens on");
        }
        let known = self.shared.gateway.get().and_then(|gateway| gateway.operator_of(token));
        known.map_or_else(
            || no("the token is unknown, has expired or has not the scope operate"),
            Ok,
        )
    }
}
