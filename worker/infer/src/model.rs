//! A served model: its queue, and a thread for each of its contexts.

mod run;

use std::sync::{Arc, Condvar, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridpool_device::chaos::deadly::Deadly;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::tensor::TensorLayout;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::{ModelOptions, check_contexts};

use self::run::{begin, run};
use super::batcher::{Batcher, Delay, Entry, Limits, Next, QueueError};
use super::context::Context;
use super::graphs::GraphsWanted;
use super::job::{InferError, Job};
use super::load::{LoadError, Loaded};
use super::runs::Runs;
use super::signature::{Arrangement, InputError, Signature};

/// A served model.
#[derive(Debug)]
pub(super) struct Model {
    shared: Arc<Shared>,
    /// Locked while the number of contexts changes, or while they end.
    made: Mutex<Resources>,
}

/// The parts of a model that change with its contexts.
#[derive(Debug)]
struct Resources {
    /// `None` once the model is closed, so that its memory is freed even while a ticket still names the model.
    loaded: Option<Loaded>,
    threads: Vec<JoinHandle<()>>,
}

/// A handle of a request.
#[derive(Clone, Debug)]
pub struct Ticket {
    id: u64,
    /// Weak: a ticket does not keep the model in memory.
    shared: Weak<Shared>,
}

impl Ticket {
    /// Withdraws the request, or the parts of it that still wait. Stops a run that has no other request, and the
    /// request is answered when that has ended. If it runs with others, it is answered now: they run on, and its
    /// rows are dropped. Returns whether it waited or ran.
    pub fn cancel(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let mut queue = shared.queue.lock();
        let mut gone = queue.waiting.withdraw(|job| job.id == self.id);
        gone.extend(queue.runs.withdraw(self.id));
        let stops = queue.runs.stops(self.id);
        drop(queue);
        if !stops {
            gone.iter().for_each(|job| job.fail(InferError::Cancelled));
        }
        stops || !gone.is_empty()
    }
}

/// What the threads of a model share.
#[derive(Debug)]
struct Shared {
    signature: Arc<Signature>,
    has_rows: bool,
    can_lend: bool,
    /// Some elements kill the process.
    deadly: Option<Deadly>,
    queue: Mutex<Queue>,
    /// The queue has a new request, or the wanted number of contexts has changed.
    changed: Condvar,
    /// A context's thread has ended.
    ended: Condvar,
}

#[derive(Debug)]
struct Queue {
    waiting: Batcher<Arc<Job>>,
    runs: Runs,
    /// Threads that exist, threads that are about to end, and the wanted number.
    contexts: u32,
    leaving: u32,
    wanted: u32,
    /// The queue takes no more requests.
    closed: bool,
    info: Arc<ModelInfo>,
}

impl Model {
    /// Serves a model with these contexts, a thread for each.
    pub(super) fn start(
        loaded: Loaded,
        contexts: Vec<Context>,
        options: &ModelOptions,
        info: ModelInfo,
        deadly: Option<Deadly>,
    ) -> Result<Self, LoadError> {
        let limits = Limits {
            rows: loaded.rows_max.unwrap_or(1).into(),
            requests: options.queue_requests,
            bytes: options.queue_bytes,
        };
        let delay = Delay {
            longest: Duration::from_micros(options.max_queue_delay_us),
            preferred: options.preferred_batch.iter().map(|&rows| rows.into()).collect(),
        };
        let queue = Queue {
            waiting: Batcher::new(limits).with_delay(delay, loaded.run_time),
            runs: Runs::default(),
            contexts: 0,
            leaving: 0,
            wanted: info.contexts,
            closed: false,
            info: Arc::new(info),
        };
        let shared = Shared {
            signature: Arc::clone(&loaded.signature),
            has_rows: loaded.rows_max.is_some(),
            can_lend: contexts.iter().any(Context::can_lend),
            deadly,
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            ended: Condvar::new(),
        };
        let made = Resources { loaded: Some(loaded), threads: Vec::new() };
        let model = Self { shared: Arc::new(shared), made: Mutex::new(made) };
        let started = model.start_contexts(contexts);
        match started {
            Ok(()) => Ok(model),
            Err(error) => {
                model.close();
                Err(error)
            }
        }
    }

    /// Starts the first contexts, and notes what their CUDA graphs take.
    fn start_contexts(&self, contexts: Vec<Context>) -> Result<(), LoadError> {
        let mut made = self.made.lock();
        let Resources { loaded: Some(loaded), threads } = &mut *made else {
            unreachable!("it was just made")
        };
        let count = u32::try_from(contexts.len()).expect("they are few");
        if let Some(graphs) = self.spawn(threads, contexts, loaded)? {
            loaded.check_budget(count)?;
            let info = &mut self.shared.queue.lock().info;
            let (cuda_graphs, device_bytes) = (graphs, loaded.device_bytes(count));
            *info = Arc::new(ModelInfo { cuda_graphs, device_bytes, ..(**info).clone() });
        }
        Ok(())
    }

    /// Gives each context a thread that owns it. If it is to have CUDA graphs, that thread captures them first; returns
    /// how many each has.
    fn spawn(
        &self,
        threads: &mut Vec<JoinHandle<()>>,
        contexts: Vec<Context>,
        loaded: &Loaded,
    ) -> Result<Option<u32>, LoadError> {
        let (sender, captured) = mpsc::channel();
        let count = contexts.len();
        for context in contexts {
            let shared = Arc::clone(&self.shared);
            let first = loaded.graphs().map(|wanted| (wanted, sender.clone()));
            self.shared.queue.lock().contexts += 1;
            let thread = thread::Builder::new().name("context".to_owned());
            match thread.spawn(move || capture_and_serve(&shared, context, first)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.shared.queue.lock().contexts -= 1;
                    return Err(LoadError::Thread(error));
                }
            }
        }
        drop(sender);
        let all = captured.iter().collect::<Result<Vec<_>, _>>()?;
        // A thread that panics says nothing.
        if loaded.graphs().is_some() && all.len() < count {
            return Err(LoadError::Ended);
        }
        Ok(all.into_iter().max())
    }

    pub(super) fn info(&self) -> Arc<ModelInfo> {
        Arc::clone(&self.shared.queue.lock().info)
    }

    /// Whether its runs can have the device copy some input from a client's memory.
    pub(super) fn can_lend(&self) -> bool {
        self.shared.can_lend
    }

    /// Which of a request's tensors is which input of the model.
    pub(super) fn arrange(&self, layout: &TensorLayout) -> Result<Arrangement, InputError> {
        self.shared.signature.arrange(layout, self.shared.has_rows)
    }

    /// Puts a request into the queue. `None` if the model is being unloaded.
    pub(super) fn push(&self, entry: Entry<Arc<Job>>) -> Result<Option<Ticket>, QueueError> {
        let ticket = Ticket { id: entry.request.id, shared: Arc::downgrade(&self.shared) };
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Ok(None);
        }
        queue.waiting.push(entry)?;
        drop(queue);
        self.shared.changed.notify_one();
        Ok(Some(ticket))
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.shared.queue.lock().waiting.len()
    }

    /// Sets the number of contexts. It makes and warms new ones first, all or none. Surplus ones finish their
    /// runs. No waiting request is lost. `None` if the model is being unloaded.
    pub(super) fn set_contexts(&self, count: u32) -> Result<Option<Arc<ModelInfo>>, LoadError> {
        check_contexts(count)?;
        // Locked until the end, so that no other thread changes the number meanwhile.
        let mut made = self.made.lock();
        let Resources { loaded: Some(loaded), threads } = &mut *made else { return Ok(None) };
        let wanted = self.shared.queue.lock().wanted;
        if count > wanted {
            loaded.check_budget(count)?;
            let contexts = loaded.more_contexts(count - wanted)?;
            // Set before the threads start, because a thread ends if it finds itself surplus.
            self.shared.queue.lock().wanted = count;
            if let Err(error) = self.spawn(threads, contexts, loaded) {
                self.shared.queue.lock().wanted = wanted;
                self.shared.changed.notify_all();
                return Err(error);
            }
        }
        let mut queue = self.shared.queue.lock();
        queue.wanted = count;
        let device_bytes = loaded.device_bytes(count);
        queue.info = Arc::new(ModelInfo { contexts: count, device_bytes, ..(*queue.info).clone() });
        let info = Arc::clone(&queue.info);
        self.shared.changed.notify_all();
        // Surplus contexts finish their runs; then their memory is free.
        let surplus = |queue: &mut Queue| queue.contexts > queue.wanted;
        let queue = self.shared.ended.wait_while(queue, surplus);
        drop(queue.unwrap_or_else(PoisonError::into_inner));
        threads.retain(|thread| !thread.is_finished());
        Ok(Some(info))
    }

    /// Takes no more requests. Does not wait for those in the queue.
    pub(super) fn refuse(&self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.waiting.end_delay();
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Takes no more requests, runs those that wait, ends the threads and frees the model's memory.
    pub(super) fn close(&self) {
        self.refuse();
        let mut made = self.made.lock();
        for thread in made.threads.drain(..) {
            // A panic of a thread has been logged, and its requests were answered when they were dropped.
            drop(thread.join());
        }
        // The session ends here: its contexts ended with their threads.
        drop(made.loaded.take());
        drop(made);
        let rest = self.shared.queue.lock().waiting.withdraw(|_| true);
        rest.iter().for_each(|job| job.fail(InferError::Cancelled));
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.close();
    }
}

/// Where a context's thread tells how many CUDA graphs it has captured.
type Told = mpsc::Sender<Result<u32, LoadError>>;

/// The body of a context's thread: captures CUDA graphs if there are to be some, tells that, and serves.
fn capture_and_serve(
    shared: &Shared,
    mut context: Context,
    first: Option<(Arc<GraphsWanted>, Told)>,
) {
    let _panics = Panics(shared);
    if let Some((wanted, told)) = first {
        let captured = context.capture(&wanted);
        let is_ready = captured.is_ok();
        if !is_ready {
            drop(context);
            end_of_context(shared);
            // Who started it is there: it waits for this.
            drop(told.send(captured));
            return;
        }
        drop(told.send(captured));
    }
    serve(shared, context);
}

/// Counts a context whose thread panics as ended.
struct Panics<'a>(&'a Shared);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            end_of_context(self.0);
        }
    }
}

fn end_of_context(shared: &Shared) {
    shared.queue.lock().contexts -= 1;
    shared.ended.notify_all();
}

/// Runs requests until this context is surplus or the model ends.
fn serve(shared: &Shared, mut context: Context) {
    loop {
        let mut queue = shared.queue.lock();
        let (late, parts, info) = loop {
            if queue.contexts - queue.leaving > queue.wanted {
                queue.leaving += 1;
                drop(queue);
                // The notification may have been meant for a thread that stays.
                shared.changed.notify_one();
                drop(context);
                let mut queue = shared.queue.lock();
                (queue.contexts, queue.leaving) = (queue.contexts - 1, queue.leaving - 1);
                drop(queue);
                shared.ended.notify_all();
                return;
            }
            let now = clock::now();
            let late = queue.waiting.late(now);
            let (parts, wait) = match queue.waiting.take(now) {
                Next::Run(parts) => (parts, None),
                Next::Wait(until) => (Vec::new(), Some(until)),
                Next::Nothing => (Vec::new(), None),
            };
            if !late.is_empty() || !parts.is_empty() {
                break (late, parts, Arc::clone(&queue.info));
            }
            if queue.closed {
                queue.contexts -= 1;
                drop(queue);
                shared.ended.notify_all();
                return;
            }
            queue = match wait {
                None => shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let waited = shared.changed.wait_timeout(queue, clock::until(until));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        let more = !queue.waiting.is_empty();
        let begun = begin(&mut queue, parts, &context);
        drop(queue);
        if more {
            // Another thread may have been woken for requests that this one took: wake one for the rest.
            shared.changed.notify_one();
        }
        late.iter().for_each(|job| job.fail(InferError::Late));
        if let Some(begun) = begun {
            run(shared, &mut context, &info, begun);
        }
    }
}
