//! What clients of the gateway ask with a token of the scope `operate`. The gateway passes the token on and the
//! supervisor checks it: a gateway that was taken over cannot make one up, and has none before a client shows it one.

use gridpool_protocol::message::{
    AskedVerdicts, ClientMessage, LastVerdicts, Refusal, Reply, Secret, TokenOrder,
};
use gridpool_protocol::principal::Principal;

use super::super::Shared;
use super::super::audit::Order;
use super::super::status::Viewer;
use super::{Connection, Peer, Refused};
use crate::gateway::Scope;
use crate::job_log::Client;

impl Shared {
    /// A principal as the job log knows it.
    pub(in crate::shell) fn client_of_log(&self, principal: Principal) -> Client {
        let token = self.gateway.get().and_then(|gateway| gateway.mark_of(&principal));
        Client { principal, token }
    }
}

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
                let who = (self.who.account, self.peer);
                if self.shared.users.orders.take(who, false, order.line_bytes()) {
                    order.ended(Err(&refusal));
                }
                self.reply(request, Err(refusal));
            }
        }
    }

    /// Answers what the page asks, among others.
    pub(super) fn on_question(&self, asked: ClientMessage) {
        let shared = &self.shared;
        if let ClientMessage::Deaths { request, after, token } = asked {
            self.answer_for(request, self.viewer_by(token.as_ref()), |viewer| {
                Reply::Deaths(shared.deaths.after(after, viewer == Viewer::All))
            });
        } else if let ClientMessage::Status { request, token } = asked {
            self.answer_for(request, self.viewer_by(token.as_ref()), |viewer| {
                Reply::Status(Box::new(shared.status(&viewer)))
            });
        } else if let ClientMessage::Timeline { request, after } = asked {
            self.say(request, Reply::Timeline(Box::new(shared.timeline.after(after))));
        } else if let ClientMessage::Verdicts { request, asked } = asked {
            self.answer_for(request, self.viewer_of_verdicts(&asked), |viewer| {
                let own = match viewer {
                    Viewer::All => None,
                    Viewer::Own(own) => Some(shared.client_of_log(own)),
                };
                let found = shared.job_log.get().map(|log| log.recent(&asked, own.as_ref()));
                let none = || LastVerdicts { is_all: own.is_none(), ..LastVerdicts::default() };
                Reply::Verdicts(found.unwrap_or_else(none))
            });
        }
    }

    /// Answers what a viewer may see, or refuses.
    fn answer_for(
        &self,
        request: u64,
        viewer: Result<Viewer, Refusal>,
        shown: impl FnOnce(Viewer) -> Reply,
    ) {
        match viewer {
            Ok(viewer) => self.say(request, shown(viewer)),
            Err(refusal) => self.reply(request, Err(refusal)),
        }
    }

    /// Whose verdicts are shown. The gateway is told only of its clients': of one whose token it shows, or, if the pool
    /// asks for no tokens, of an address. It is not told what users of this machine do. Without a question for
    /// somebody it gets the number of the latest.
    fn viewer_of_verdicts(&self, asked: &AskedVerdicts) -> Result<Viewer, Refusal> {
        let no = |why: &str| Err(Refusal::NotAllowed(why.to_owned()));
        match (self.peer, &asked.token, &asked.whose) {
            (Peer::Bridge | Peer::Client | Peer::Operator, None, None) => {
                Ok(self.peer.viewer(self.who.account))
            }
            (Peer::Bridge | Peer::Client | Peer::Operator, ..) => {
                no("only the pool's own gateway asks for others")
            }
            (Peer::Gateway, Some(token), None) => match self.operator_of(token) {
                Ok(_) => Ok(Viewer::All),
                Err(_) => self.user_of(token),
            },
            (Peer::Gateway, None, Some(whose @ Principal::Address(_)))
                if !self.asks_for_tokens() =>
            {
                Ok(Viewer::Own(whose.clone()))
            }
            (Peer::Gateway, None, None) => Ok(Viewer::Own(Principal::Gateway)),
            (Peer::Gateway, None, Some(Principal::Uid(_))) => no(
                "verdicts of users of this machine are not told to the gateway: use `gridpool jobs`",
            ),
            (Peer::Gateway, ..) => no("show the token of whom you ask for"),
        }
    }

    /// The principal of a token that may run jobs.
    fn user_of(&self, token: &Secret) -> Result<Viewer, Refusal> {
        let gateway = self.shared.gateway.get();
        let known = gateway.and_then(|gateway| gateway.holder_of(token, &[Scope::Infer]));
        known.map(|name| Viewer::Own(Principal::Token(name))).ok_or_else(|| {
            let why =
                "the token is unknown, has expired or has neither the scope infer nor operate";
            Refusal::NotAllowed(why.to_owned())
        })
    }

    fn asks_for_tokens(&self) -> bool {
        self.shared.gateway.get().is_some_and(|gateway| gateway.asks_for_tokens())
    }

    /// Whose programs and models are shown: everybody's to an operator, who may show it by a token.
    fn viewer_by(&self, token: Option<&Secret>) -> Result<Viewer, Refusal> {
        match token {
            Some(token) => self.operator_of(token).map(|_| Viewer::All),
            None => Ok(self.peer.viewer(self.who.account)),
        }
    }

    /// The name of a token that may change the pool.
    fn operator_of(&self, token: &Secret) -> Result<String, Refusal> {
        let no = |why: &str| Err(Refusal::NotAllowed(why.to_owned()));
        if self.peer != Peer::Gateway {
            return no("only the pool's own gateway passes tokens on");
        }
        let known = self
            .shared
            .gateway
            .get()
            .and_then(|gateway| gateway.holder_of(token, &[Scope::Operate]));
        known.map_or_else(
            || no("the token is unknown, has expired or has not the scope operate"),
            Ok,
        )
    }
}
