// The stream of events, the token, orders with a question, and the start of it all.

const AGAIN_MS = [250, 1000, 2000, 5000];
// Longer than the gateway waits for the pool to say how it is; it tells something four times a second.
const SILENCE_MS = 8000;
const WHOLE_EVERY_MS = 1000;
// No event is longer.
const EVENT_CHARS_MAX = 8 << 20;

let stream = null;

function link(kind, words) {
  $('link').className = kind;
  say($('link'), words);
}

function showTrouble(words) {
  $('trouble').hidden = !words;
  say($('trouble'), words || '');
}

// Events that came together are drawn together, when the browser draws.
const due = { state: false, timeline: false };
function later(what) {
  const isAsked = due.state || due.timeline;
  due[what] = true;
  if (!isAsked) requestAnimationFrame(drawDue);
}

function drawDue() {
  const { state: isState, timeline: isTimeline } = due;
  // First, so that the next event is drawn whatever becomes of this one.
  [due.state, due.timeline] = [false, false];
  if (isState && state) {
    showOverview();
    showWorkers();
    showRest();
    followVerdicts();
    followWhole();
    document.body.dataset.at = state.at_ms;
  }
  if (isTimeline) drawTimeline();
}

// A stream begins with all deaths that there are.
let isBegin = false;
// The newest death that was heard of, whatever is shown.
let latestDeath = '';
const RECEIPTS = 'The last jobs that came over HTTP or gRPC';

// Takes back what only the token before may have shown.
function forget() {
  forgetWhole();
  deaths.clear();
  addDeaths([], true);
  say($('deaths-note'), '');
  forgetVerdicts();
  $('receipts').replaceChildren();
  say($('receipts-note'), RECEIPTS);
}

const HEARS = {
  timeline(all) {
    Object.assign(timeline, all);
    isBegin = true;
    later('timeline');
  },
  point(one) {
    addPoint(one);
    later('timeline');
  },
  deaths(list) {
    const latest = list[list.length - 1];
    const name = `${latest.number} ${latest.at_s} ${latest.worker}`;
    const isNew = state && name !== latestDeath;
    latestDeath = name;
    if (isBegin) keepDeaths(list);
    addDeaths(list, false);
    if (isNew) say($('news'), `${latest.worker} died`);
    if (token) wholeDeaths();
  },
  state(next) {
    showTrouble(next.trouble);
    if (next.trouble) return;
    if (isBegin) keepDeaths([]);
    state = next;
    later('state');
  },
  refused(why) {
    forget();
    showTrouble(why);
  },
  end() {
    link('lost', 'the gateway ends; waiting for the next');
  },
};

// Those deaths alone are of this pool: others are of one before it.
function keepDeaths(list) {
  isBegin = false;
  const kept = list.filter(knows).map((death) => deaths.get(death.number));
  deaths.clear();
  kept.forEach((death) => deaths.set(death.number, death));
  addDeaths([], true);
}

// Hears events until the stream ends or nothing comes any more: a connection can end without a word.
async function hear(signal) {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener('abort', stop);
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, SILENCE_MS);
  };
  try {
    wait();
    await hearAll(own.signal, wait);
  } catch (error) {
    throw own.signal.aborted ? new Error(`nothing came for ${SILENCE_MS / 1e3} s`) : error;
  } finally {
    clearTimeout(timer);
    stop();
    signal.removeEventListener('abort', stop);
  }
}

// The browser's own reader of events sends no token, so this one is ours.
async function hearAll(signal, heard) {
  const answer = await fetch('v2/gridpool/events', {
    headers: authorized({}), cache: 'no-store', credentials: 'omit', redirect: 'error', signal,
  });
  if (!answer.ok) {
    const { error } = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(error || `the server answered ${answer.status}`), { status: answer.status });
  }
  link('live', 'live');
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    text += value;
    if (text.length > EVENT_CHARS_MAX) throw new Error('an event is too long');
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(text.slice(0, end)) || [];
      text = text.slice(end + 2);
      if (name in HEARS) HEARS[name](JSON.parse(data));
    }
  }
}

// Follows the pool as long as the page can be seen: browsers have few connections to a server.
async function follow() {
  if (stream) stream.abort();
  stream = new AbortController();
  const { signal } = stream;
  let failures = 0;
  while (!signal.aborted && !document.hidden) {
    let wait = AGAIN_MS[0];
    try {
      await hear(signal);
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      link('lost', `not connected: ${error.message}`);
      if (error.status === 401 || error.status === 403) {
        forget();
        return;
      }
      wait = AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)];
      failures += 1;
    }
    await new Promise((resolve) => { setTimeout(resolve, wait); });
  }
}

async function wholeDeaths() {
  const own = token;
  try {
    const { deaths: whole } = await request('v2/gridpool/deaths');
    if (token === own) addDeaths(whole, true);
  } catch (error) {
    if (token !== own) return;
    if (error.status !== 403) {
      showTrouble(error.message);
    } else if (Array.from(deaths.values()).some((death) => death.isWhole)) {
      // The token was an operator's until now.
      forget();
      follow();
    }
  }
}

function forgetWhole() {
  forOperators.runs.clear();
  forOperators.denied.clear();
  forOperators.isRefused = false;
}

// Asks what only an operator is told, at most once a second, and only if something is left out here.
async function followWhole() {
  const { workers, denylist } = state.status;
  const isLess = denylist.latest.some((row) => !row.what) || workers.some(({ run }) => run && !run.what);
  if (!token || !isLess || forOperators.isAsking || forOperators.isRefused || document.hidden) return;
  forOperators.isAsking = true;
  const own = token;
  try {
    const status = await request('v2/gridpool/status');
    if (token === own) {
      forOperators.runs = new Map(status.workers.filter(({ run }) => run).map(({ run }) => [run.job, run.what]));
      forOperators.denied = new Map(status.denylist.latest.map(({ content, what }) => [content, what]));
      later('state');
    }
  } catch (error) {
    if (token === own && (error.status === 401 || error.status === 403)) {
      forgetWhole();
      // Another token may see it.
      forOperators.isRefused = true;
    }
  } finally {
    setTimeout(() => { forOperators.isAsking = false; }, WHOLE_EVERY_MS);
  }
}

async function showReceipts() {
  const own = token;
  try {
    const { receipts, all } = await request('v2/gridpool/receipts');
    if (token !== own) return;
    const whose = all ? 'of all clients' : 'yours';
    say($('receipts-note'), `${RECEIPTS}, ${whose}: ${receipts.length}.`);
    const make = (row) => {
      const made = node('details');
      const { receipt } = row;
      const workers = Array.from(new Set(receipt.attempts.map((attempt) => attempt.worker))).join(', ');
      const words = `${receipt.job} ${receipt.verdict} ${span(receipt.total_us / 1e6)} ${workers} for ${row.principal}`;
      made.append(node('summary', words));
      made.addEventListener('toggle', () => {
        if (made.open && made.children.length === 1) made.append(facts(receipt));
      });
      return made;
    };
    keep($('receipts'), receipts, (row) => row.receipt.job, make, () => {});
  } catch (error) {
    say($('receipts-note'), error.message);
  }
}

// ---- orders ----

let asked = null;

// Asks whether an order is meant, and gives it.
function order(what) {
  if (!token) {
    return openToken();
  }
  asked = what;
  say($('ask-title'), what.title);
  say($('ask-text'), what.text);
  say($('ask-yes'), what.yes);
  say($('ask-error'), '');
  $('ask-yes').disabled = false;
  $('ask').showModal();
  // Enter must not give an order that nobody has read.
  $('ask-no').focus();
  return undefined;
}

async function carryOut(event) {
  event.preventDefault();
  $('ask-yes').disabled = true;
  try {
    const { done } = await request(asked.path, asked.body);
    say($('news'), done);
    $('ask').close();
  } catch (error) {
    say($('ask-error'), error.message);
    $('ask-yes').disabled = false;
  }
}

function openToken() {
  $('token').value = token;
  $('token-dialog').showModal();
}

function useToken(event) {
  event.preventDefault();
  token = $('token').value.trim();
  $('token').value = '';
  $('token-dialog').close();
  say($('token-open'), token ? 'Token is set' : 'Token');
  forget();
  follow();
  if (token) wholeDeaths();
}

function start() {
  $('token-open').addEventListener('click', openToken);
  $('token-form').addEventListener('submit', useToken);
  $('token-no').addEventListener('click', () => $('token-dialog').close());
  $('ask-form').addEventListener('submit', carryOut);
  $('ask-no').addEventListener('click', () => $('ask').close());
  $('drain').addEventListener('click', () => order({
    title: 'Drain the pool?', text: 'It finishes the jobs that it has accepted, takes no others, and stops.',
    yes: 'Drain it', path: 'v2/gridpool/drain', body: {},
  }));
  $('span').addEventListener('change', () => later('timeline'));
  window.addEventListener('resize', () => later('timeline'));
  $('try').addEventListener('submit', tryProgram);
  $('receipts-load').addEventListener('click', showReceipts);
  for (const field of ['verdict', 'job']) {
    $(field).addEventListener('change', () => {
      chosen[field] = $(field).value.trim();
      forgetVerdicts();
      followVerdicts();
    });
  }
  document.addEventListener('visibilitychange', () => (document.hidden ? stream?.abort() : follow()));
  $('program').value = 'rot90';
  $('task').value = JSON.stringify({ train: [{ input: [[1, 2, 0], [0, 2, 0]], output: [[0, 1], [2, 2], [0, 0]] }] });
  addDeaths([], true);
  follow();
}

start();
