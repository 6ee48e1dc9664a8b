//! One thread per client connection: reads its messages, checks them, and acts on them.

mod by_token;
mod check;
mod peer;
mod saying;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use gridpool_ipc::account::Account;
use gridpool_ipc::frame::{self, FrameError, FrameReader};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::ids::{ArenaId, ClientId, ContentHash, JobId};
use gridpool_protocol::limits::{HANDSHAKE_TIMEOUT, PROTOCOL_VERSION};
use gridpool_protocol::message::{ClientMessage, Limit, Refusal, Reply, ServerMessage, Submission};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::program::Programs;

use super::arenas::{ClientArena, Owner, OwnerLimits};
use super::audit::{self, Order, Who};
use super::content;
use super::held::HeldJob;
use super::inbox::Batch;
use super::operator;
use super::outbox::{ArenaToSend, Outbox};
use super::refused::Refused;
use super::seats::{NoSeat, Seat, Sitter};
use super::upgrade::By;
use super::{Shared, UpgradeError};
pub(super) use check::NewJob;
use gridpool_core::event::{ClientEvent, Event, Work};
pub(super) use peer::Peer;
pub(super) use saying::answer;

/// Descriptors that a connection takes, its arenas apart.
pub(super) const DESCRIPTORS_PER_CLIENT: usize = 2;

/// Descriptors that an arena takes until its client has been sent one of them. Then it is one.
const DESCRIPTORS_FOR_ARENA: usize = 2;

/// Starts the thread of a connection.
pub(super) fn start(shared: &Arc<Shared>, socket: UnixStream) -> io::Result<()> {
    let id = ClientId(shared.next_id());
    let (account, pid) = Account::and_pid_of_peer(&socket)?;
    let outbox = Outbox::new(id, socket.try_clone()?, Arc::clone(&shared.outbox_bytes_high));
    let own_max = shared.users.connections_max(account);
    let seat = match shared.seats.take(id, &outbox, Sitter { uid: account.uid(), own_max }) {
        Ok(seat) => seat,
        Err(why) => {
            // The accepting thread looks up no names.
            let account = account.by_number();
            let (refused, reason) = match why {
                NoSeat::Full => (
                    Refused::ConnectionsFull,
                    "BUSY: too many connections end at this moment".to_owned(),
                ),
                NoSeat::Own => (
                    Refused::ConnectionsOwn,
                    format!(
                        "BUSY: {account} has {own_max} connections, as many as one user may; close one"
                    ),
                ),
            };
            shared.users.refusals.note(refused, &account);
            outbox.tell(&ServerMessage::Closing { reason });
            return Ok(());
        }
    };
    let mut reader = FrameReader::new(socket);
    reader.set_spin(shared.spin);
    let mut connection = Connection {
        id,
        shared: Arc::clone(shared),
        reader,
        outbox,
        arenas: BTreeMap::new(),
        programs: Programs::default(),
        checked: Vec::new(),
        label: "".into(),
        who: Who { account, pid, client: id },
        peer: Peer::Client,
        seat,
    };
    thread::Builder::new().name(id.to_string()).spawn(move || connection.serve())?;
    Ok(())
}

/// One client. Its arenas end with it.
struct Connection {
    id: ClientId,
    shared: Arc<Shared>,
    reader: FrameReader,
    outbox: Outbox,
    arenas: BTreeMap<ArenaId, Arc<ClientArena>>,
    programs: Programs,
    /// Valid submissions that the core does not know yet.
    checked: Vec<NewJob>,
    /// That of the latest job.
    label: Arc<str>,
    who: Who,
    /// What it may do: known after the handshake.
    peer: Peer,
    /// Given back last, when the descriptors of the connection are closed.
    seat: Seat,
}

impl Connection {
    fn serve(&mut self) {
        let client = self.id;
        if let Err(reason) = self.shake_hands() {
            self.note_broken(Refused::Handshake, &reason);
            self.say_closing(reason);
            return;
        }
        {
            let mut core = self.shared.lock();
            core.clients.insert(client, self.outbox.clone());
            if self.peer == Peer::Gateway {
                core.of_gateway.insert(client);
            }
            let now = self.shared.timestamp();
            core.handle(&self.shared, now, Event::Client(client, ClientEvent::Connected));
        }
        let ended = self.listen();
        {
            let mut core = self.shared.lock();
            core.clients.remove(&client);
            core.of_gateway.remove(&client);
            let now = self.shared.timestamp();
            core.handle(&self.shared, now, Event::Client(client, ClientEvent::Gone));
        }
        for arena in std::mem::take(&mut self.arenas).into_keys() {
            self.forget(arena);
        }
        match ended {
            Ok(()) => {
                tracing::debug!(%client, "client has left");
                if self.outbox.is_unread() {
                    self.note(Refused::Unread);
                }
                self.outbox.close();
            }
            Err(reason) => {
                self.note_broken(Refused::Protocol, &reason);
                self.say_closing(reason);
            }
        }
    }

    fn shake_hands(&mut self) -> Result<(), String> {
        let frame = self.reader.read(Some(HANDSHAKE_TIMEOUT));
        let frame = frame.map_err(|error| Chain(&error).to_string())?;
        let frame = frame.ok_or_else(|| format!("no hello within {HANDSHAKE_TIMEOUT:?}"))?;
        match codec::decode(&frame.body) {
            Ok(ClientMessage::Hello { version: PROTOCOL_VERSION }) => {
                self.peer = Peer::of(&self.shared, self.who, self.reader.socket())?;
                if self.peer == Peer::Gateway {
                    self.seat.is_of_gateway();
                }
                self.outbox.tell(&ServerMessage::Welcome { version: PROTOCOL_VERSION });
                Ok(())
            }
            Ok(ClientMessage::Hello { version }) => Err(format!(
                "the client speaks protocol {version}, this supervisor {PROTOCOL_VERSION}: use a \
                 client and a supervisor of one version"
            )),
            Ok(_) => Err("the first message must be a hello".to_owned()),
            Err(error) => Err(Chain(&error).to_string()),
        }
    }

    /// Reads messages until the client disconnects. The error says how it broke the protocol.
    fn listen(&mut self) -> Result<(), String> {
        while self.outbox.wait_for_room() {
            let decode = |body: &[u8], _| codec::decode(body);
            let read = match self.reader.take_frame_with(decode) {
                Ok(None) => {
                    self.submit_checked();
                    self.reader.read_with(None, decode)
                }
                taken => taken,
            };
            match read {
                Ok(Some(message)) => {
                    self.on_message(message.map_err(|error| Chain(&error).to_string())?)?;
                }
                Ok(None) => {}
                Err(FrameError::Closed) => return Ok(()),
                Err(error) => return Err(Chain(&error).to_string()),
            }
        }
        Ok(())
    }

    fn on_message(&mut self, message: ClientMessage) -> Result<(), String> {
        self.seat.is_heard();
        if !matches!(message, ClientMessage::Submit(_)) {
            // What came before it is done before it.
            self.submit_checked();
            if !self.may_answer(&message)? {
                return Ok(());
            }
        }
        match message {
            ClientMessage::Hello { .. } => return Err("a second hello".to_owned()),
            ClientMessage::Submit(submission) => self.on_submit(*submission),
            ClientMessage::Models { request, from } => {
                let (models, total) = self.shared.models_from(from);
                self.say(request, Reply::Models { models, total });
            }
            ClientMessage::Cancel { key } => {
                self.shared.post_client(self.id, ClientEvent::CancelRequested { key });
            }
            ClientMessage::CreateArena { request, bytes } => self.on_create_arena(request, bytes),
            ClientMessage::DropArena { arena } => {
                if let Some(given_back) = self.arenas.remove(&arena) {
                    given_back.give_back();
                    self.forget(arena);
                }
            }
            ClientMessage::Job { request, job } => {
                let viewer = self.peer.viewer(self.who.account);
                self.say(request, Reply::Job(self.shared.job(&viewer, job)));
            }
            ClientMessage::Policy { request } => {
                let rules = self.shared.command.lock().policy.rules();
                self.say(request, Reply::Policy(rules));
            }
            ClientMessage::Metrics { request } => {
                let metrics = Box::new(self.shared.metrics(&self.peer.viewer(self.who.account)));
                self.say(request, Reply::Metrics(metrics));
            }
            ClientMessage::ByToken { request, token, order } => {
                self.on_order_by_token(request, &token, &order);
            }
            asked @ (ClientMessage::Deaths { .. }
            | ClientMessage::Status { .. }
            | ClientMessage::Timeline { .. }
            | ClientMessage::Verdicts { .. }) => self.on_question(asked),
            order @ (ClientMessage::Drain { .. }
            | ClientMessage::Kill { .. }
            | ClientMessage::Model { .. }
            | ClientMessage::Release { .. }
            | ClientMessage::Repository { .. }
            | ClientMessage::Upgrade { .. }) => self.on_order(order),
        }
        Ok(())
    }

    /// Whether an order is carried out. If it is not, the audit says so.
    fn may_order(&self, order: &Order) -> Result<(), Refusal> {
        let may = self.peer.check(order).map_err(Refusal::NotAllowed);
        let who = (self.who.account, self.peer);
        if !self.shared.users.orders.take(who, may.is_ok(), order.line_bytes()) {
            self.note(Refused::OrdersRate);
            return Err(may.err().unwrap_or_else(audit::too_many));
        }
        if let Err(refusal) = &may {
            self.note(Refused::Order);
            order.ended(Err(refusal));
        }
        may
    }

    /// Carries an order out. The core answers some, perhaps later.
    fn on_order(&self, message: ClientMessage) {
        if let Some((request, order)) = Order::of(self.who, &message) {
            self.carry_out((request, order), message);
        }
    }

    fn carry_out(&self, (request, order): (u64, Order), message: ClientMessage) {
        if let Err(refusal) = self.may_order(&order) {
            return self.reply(request, Err(refusal));
        }
        let (client, number) = (self.id, self.shared.next_id());
        let asked = match message {
            ClientMessage::Kill { worker, signal, .. } => {
                let killed = operator::kill(&self.shared, client, worker, signal);
                order.ended(killed.as_deref());
                return self.reply(request, killed);
            }
            ClientMessage::Drain { .. } => {
                tracing::info!(%client, "draining");
                order.ended(Ok("draining"));
                self.reply(request, Ok("draining".to_owned()));
                return self.shared.post(Event::DrainRequested);
            }
            ClientMessage::Upgrade { one_by_one, .. } => {
                let outbox = self.outbox.clone();
                return self.shared.upgrade(By::Command { one_by_one }, move |result| {
                    let has_failed = result.as_ref().is_err_and(UpgradeError::has_begun);
                    let result = result.map_err(|error| Refusal::Unable(Chain(&error).to_string()));
                    order.came_to(result.as_deref(), has_failed);
                    outbox.tell(&answer(request, result));
                });
            }
            ClientMessage::Repository { command, .. } => {
                let outbox = self.outbox.clone();
                return self.shared.change_repository(command, move |result| {
                    order.ended(result.as_deref());
                    outbox.tell(&answer(request, result));
                });
            }
            ClientMessage::Model { command, .. } => {
                ClientEvent::ModelsChangeRequested { request: number, command: Box::new(command) }
            }
            ClientMessage::Release { release, .. } => {
                ClientEvent::ReleaseRequested { request: number, release }
            }
            ClientMessage::ByToken { .. }
            | ClientMessage::Cancel { .. }
            | ClientMessage::CreateArena { .. }
            | ClientMessage::Deaths { .. }
            | ClientMessage::DropArena { .. }
            | ClientMessage::Hello { .. }
            | ClientMessage::Job { .. }
            | ClientMessage::Metrics { .. }
            | ClientMessage::Models { .. }
            | ClientMessage::Policy { .. }
            | ClientMessage::Status { .. }
            | ClientMessage::Submit(_)
            | ClientMessage::Timeline { .. }
            | ClientMessage::Verdicts { .. } => return,
        };
        let mut core = self.shared.lock();
        if let ClientEvent::ModelsChangeRequested { command, .. } = &asked
            && let Err(refusal) = core.may_change(&self.shared, command)
        {
            order.ended(Err(&refusal));
            return self.reply(request, Err(refusal));
        }
        core.orders.insert(number, (request, order));
        core.handle(&self.shared, self.shared.timestamp(), Event::Client(client, asked));
    }

    fn on_submit(&mut self, mut submission: Submission) {
        if !self.seat.may_submit() {
            let (key, refusal) = (submission.key, Refusal::Busy(Limit::Connections));
            self.note(Refused::ConnectionsFull);
            return self.outbox.tell(&ServerMessage::Refused { key, refusal });
        }
        match self.check(&submission) {
            Ok(mut checked) => {
                checked.trace(&self.shared, &mut submission);
                self.checked.push(checked.into_job(self.id, submission));
            }
            Err(why) => self.refuse(submission.key, why),
        }
    }

    /// Hands valid jobs to the core, those together that have come together.
    fn submit_checked(&mut self) {
        if self.checked.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.checked);
        match self.shared.inbox.denies_any.load(Ordering::Acquire) {
            true => self.submit_examined(all),
            false => self.shared.hand_in(Batch::Submissions(self.id, all)),
        }
    }

    /// The same while there is a denylist.
    fn submit_examined(&self, all: Vec<NewJob>) {
        let shared = &*self.shared;
        let mut core = shared.lock();
        for job in all {
            let (mut request, held) = job.number(shared);
            if let Some(work) = core.pool.asks_for_content(&request) {
                // Hashing takes long: do it on the client's own thread, without the lock.
                core.take_told().send_after(core, shared);
                request.content = self.read(&work, &held);
                core = shared.lock();
                // Others may have come meanwhile.
                request.job = JobId(shared.next_id());
            }
            core.submit(shared, self.id, request, held);
        }
        core.rearm(shared);
        core.take_told().send_after(core, shared);
    }

    /// The content of a job that looks like one on the denylist.
    fn read(&self, work: &Work, held: &HeldJob) -> Option<ContentHash> {
        let content = content::hash(work, held);
        if let Err(error) = &content {
            tracing::warn!(client = %self.id, %error, "what a job is cannot be read");
        }
        content.ok()
    }

    /// Makes an arena, on the client's own thread: it takes long to commit memory.
    fn on_create_arena(&mut self, request: u64, bytes: u64) {
        let own = self.arenas.values().map(|arena| arena.bytes()).sum();
        let may_submit = self.seat.may_submit();
        let taken = self.shared.descriptors.take(DESCRIPTORS_FOR_ARENA).filter(|_| may_submit);
        let made = taken.ok_or(Refusal::Busy(Limit::Arenas)).and_then(|mut taken| {
            let held = (own, self.arenas.len());
            let mut arena = self.shared.budget.create(bytes, held, self.arena_owner())?;
            let _descriptor = taken.split(1);
            arena.hold(taken);
            Ok(ArenaToSend { arena: Arc::new(arena), _descriptor })
        });
        match made {
            Ok(to_send) => {
                let arena = Arc::clone(&to_send.arena);
                let id = ArenaId(self.shared.next_id());
                let bytes = arena.bytes();
                let message = ServerMessage::ArenaCreated { request, arena: id, bytes };
                let frame = frame::of(&message, 1).expect("a short message fits a frame");
                self.outbox.send(frame, Some(to_send));
                self.shared.lock().use_arena(id);
                self.arenas.insert(id, arena);
            }
            Err(refusal) => {
                self.note(Refused::Arenas);
                self.outbox.tell(&ServerMessage::Denied { request, refusal });
            }
        }
    }

    /// Whose an arena of this connection is, and what that user may have.
    fn arena_owner(&self) -> (Owner, OwnerLimits) {
        let descriptors = self.shared.descriptors.max();
        if self.peer == Peer::Gateway {
            return (None, OwnerLimits::of(descriptors, None));
        }
        let uid = self.who.account.uid();
        let bytes_max = self.shared.lock().pool.quota(&Principal::Uid(uid)).bytes_max;
        (Some(uid), OwnerLimits::of(descriptors, bytes_max))
    }

    /// Drops the connection's use of an arena.
    fn forget(&self, arena: ArenaId) {
        self.shared.lock().forget(arena);
    }
}
