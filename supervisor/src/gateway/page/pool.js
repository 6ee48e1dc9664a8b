// The pool as the latest event has it.

// The event, and what was seen of deaths: by number, the newest whole text that is known.
let state = null;
const deaths = new Map();
const DEATHS_MAX = 24;
// Of a hash, where people need not copy it.
const HASH_SHOWN = 12;
// What an operator's token shows beside: what runs, by job, and what ran of what is refused, by its hash.
const forOperators = { runs: new Map(), denied: new Map(), isAsking: false, isRefused: false };

// The programs and models of other clients come with the token of an operator alone.
function runs(worker) {
  const run = worker.run;
  if (!run) return '';
  const more = run.jobs > 1 ? ` and ${run.jobs - 1} more` : '';
  const text = run.what || forOperators.runs.get(run.job);
  const what = text ? `: ${text}` : '';
  return `${run.job}${more}, ${number(run.items)} items, ${span(run.for_us / 1e6)}${what}`;
}

function restarts(worker) {
  const why = Object.entries(worker.restart_reasons).map(([reason, count]) => `${number(count)} ${reason}`);
  return number(worker.restarts) + (why.length ? ` (${why.join(', ')})` : '');
}

function tiles(pool) {
  const { status } = pool;
  const sums = status.counters;
  const verdicts = [
    ['OK', sums.ok], ['FAILED', sums.failed], ['DEADLINE', sums.deadline], ['POISON', sums.poison],
    ['DEVICE_LOST', sums.device_lost], ['CANCELLED', sums.cancelled], ['refused as busy', sums.refused_busy],
    ['refused as poison', sums.refused_poison],
  ];
  const ready = status.supervisor.draining ? 'draining' : pool.not_ready ? 'not ready' : 'ready';
  return [
    ['state', ready, ready === 'ready' ? 'good' : 'bad'],
    ['up for', span(status.supervisor.uptime_s)],
    ['jobs a second', rate(pool.jobs_rate)],
    ['items a second', rate(pool.items_rate)],
    ['jobs that wait', number(status.queue.jobs)],
    ['accepted', number(sums.accepted)],
    ['restarts', number(sums.restarts)],
  ].concat(verdicts.map(([name, count]) => [name, number(count)]));
}

// The version of the pool whose script this is.
let ownVersion = '';

function showVersion() {
  const { version } = state.status.supervisor;
  ownVersion = ownVersion || version;
  say($('version'), version);
  $('reload').hidden = version === ownVersion;
  say($('reload'), `The pool has the version ${version} now, and this page that of ${ownVersion}: load it again.`);
}

function showOverview() {
  showVersion();
  const make = () => {
    const tile = node('div');
    tile.append(node('dt'), node('dd'));
    return tile;
  };
  keep($('overview'), tiles(state), ([name]) => name, make, (tile, [name, value, kind]) => {
    say(tile.children[0], name);
    say(tile.children[1], value);
    tile.children[1].className = kind || '';
  });
  const faults = state.faults.concat(state.not_ready ? [`not ready: ${state.not_ready}`] : []);
  keep($('faults'), faults, (text) => text, () => node('li'), say);
}

function showWorkers() {
  const { status } = state;
  const rates = new Map(state.rows.map((row) => [`${row.name} ${row.group}`, row]));
  const of = (worker) => rates.get(`${worker.name} ${worker.group}`) || {};
  const memory = (worker) => {
    const { memory: used, memory_total: total } = of(worker);
    return known(used, bytes) + (total ? ` of ${bytes(total)}` : '');
  };
  const kill = (worker, cell) => {
    if (!worker.pid) return '';
    button(cell, 'Kill', `Kill ${worker.name} (${worker.group})`, () => order({
      title: `Kill ${worker.name}?`,
      text: 'Its process ends with SIGKILL. What it runs runs again, here or elsewhere, and another process starts.',
      yes: 'Kill it', path: 'v2/gridpool/kill', body: { worker: worker.name },
    }));
    return undefined;
  };
  const columns = [
    ['Worker', (worker) => worker.name],
    ['Group', (worker) => worker.group],
    ['State', (worker, cell) => {
      cell.className = `state s-${worker.state}`;
      return worker.state;
    }],
    ['Runs', runs],
    ['Utilisation', (worker) => percent(of(worker).busy_percent)],
    ['Memory', memory],
    ['Jobs/s', (worker) => rate(of(worker).jobs_rate)],
    ['Items/s', (worker) => rate(of(worker).items_rate)],
    ['Jobs', (worker) => number(worker.jobs_done)],
    ['Restarts', restarts],
    ['Last fault', (worker) => worker.last_fault],
    ['Order', kill],
  ];
  const key = (worker, index) => `${worker.name} ${worker.group} ${worker.pid ? '' : index}`;
  table($('workers'), 'Workers, by device', columns, status.workers, key, 'no workers');
  table($('gpus'), 'GPUs', [
    ['GPU', (gpu) => gpu.name],
    ['Utilisation', (gpu) => percent(gpu.busy_percent)],
    ['Memory', (gpu) => `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`],
    ['Power', (gpu) => known(gpu.power_mw, (mw) => `${Math.round(mw / 1e3)} W`)],
    ['Xids', (gpu) => (gpu.xids ? `${gpu.xids}, the last ${gpu.last_xid}` : '0')],
  ], status.devices, (gpu) => gpu.name);
  const release = (out, cell) => button(cell, 'Release', `Release ${out.device}`, () => order({
    title: `Release ${out.device}?`, text: 'The pool probes the device now, and uses it again if that succeeds.',
    yes: 'Release it', path: 'v2/gridpool/release', body: { what: out.device },
  }));
  table($('quarantines'), 'Out of service', [
    ['Device', (out) => out.device],
    ['Group', (out) => out.group],
    ['Why', (out) => out.why],
    ['Tried again', (out) => (out.tried_in_us === null ? 'by an operator' : `in ${span(out.tried_in_us / 1e6)}`)],
    ['Order', release],
  ], status.quarantines, (out) => `${out.device} ${out.group}`);
  showDenylist();
}

// What the pool refuses, because it killed its workers.
function showDenylist() {
  const { contents, latest } = state.status.denylist;
  const short = ({ content }) => content.slice(0, HASH_SHOWN);
  const allow = (row, cell) => button(cell, 'Release', `Release job ${short(row)}`, () => order({
    title: `Release job ${short(row)}?`,
    text: 'It killed its workers while it ran alone. The pool accepts it again, and it may kill others.',
    yes: 'Release it', path: 'v2/gridpool/release', body: { what: row.content },
  }));
  const title = contents > latest.length ? `Refused jobs: the latest ${latest.length} of ${contents}` : 'Refused jobs';
  table($('denylist'), title, [
    ['Refused', short],
    ['Ran', (row) => row.what || forOperators.denied.get(row.content) || UNKNOWN],
    ['Items', (row) => number(row.items)],
    ['For', (row) => span(row.for_us / 1e6)],
    ['Order', allow],
  ], latest, (row) => row.content);
}

function showRest() {
  const { status } = state;
  const queue = status.queue;
  const oldest = queue.oldest_us === null ? '' : `, the oldest for ${span(queue.oldest_us / 1e6)}`;
  const title = `${number(queue.jobs)} jobs wait${oldest}; the most were ${number(queue.jobs_high)}`;
  table($('principals'), title, [
    ['Client', (row) => (row.name ? `${row.principal} (${row.name})` : row.principal)],
    ['Queued', (row) => number(row.queued)],
    ['Running', (row) => number(row.running)],
    ['Done', (row) => number(row.done)],
    ['Device time', (row) => span(row.device_s)],
    ['Quota', (row) => row.quota],
  ], status.principals, (row) => row.principal, 'no clients');
  const missing = status.missing.map(({ model, why }) => ({ name: model, version: '', why_not_ready: why }));
  table($('models'), 'Models, and the programs that were asked for over HTTP or gRPC', [
    // A model that shares its workers has no rate of its own there.
    ['Model', (model) => model.name],
    ['Version', (model) => model.version],
    ['Ready', (model) => (model.why_not_ready ? `no: ${model.why_not_ready}` : 'yes')],
    ['Workers', (model) => known(model.workers, number)],
    ['Jobs/s of all clients', (model) => rate(model.jobs_rate)],
    ['Items/s over HTTP and gRPC', (model) => rate(model.rate)],
    ['Items over HTTP and gRPC', (model) => known(model.inferences, number)],
    ['Failed there', (model) => known(model.failed, number)],
    ['In progress there', (model) => known(model.in_flight, number)],
  ], state.models.concat(missing), (model) => `${model.name} ${model.version}`, 'none was asked for yet');
  const reasons = state.roles.flatMap(({ role, restarts }) =>
    Object.entries(restarts).map(([reason, count]) => ({ role, reason, count })));
  table($('reasons'), 'Why workers were replaced', [
    ['Role', (row) => row.role],
    ['Reason', (row) => row.reason],
    ['Times', (row) => number(row.count)],
  ], reasons, (row) => `${row.role} ${row.reason}`, 'no worker was replaced');
}

// Whether a death was told before. Another pool counts its own from 1, so the number alone does not say.
function knows(death) {
  const before = deaths.get(death.number);
  return Boolean(before) && before.at_s === death.at_s && before.worker === death.worker;
}

function addDeaths(list, isWhole) {
  for (const death of list) {
    if (!knows(death) || isWhole) deaths.set(death.number, { ...death, isWhole });
  }
  const newest = Array.from(deaths.values()).sort((a, b) => b.number - a.number).slice(0, DEATHS_MAX);
  deaths.clear();
  newest.forEach((death) => deaths.set(death.number, death));
  const make = () => {
    const made = node('details');
    made.append(node('summary'), node('pre'));
    return made;
  };
  keep($('deaths'), newest, (death) => String(death.number), make, (made, death) => {
    const ended = death.block.split('\n').find((line) => line.trim().startsWith('ended')) || '';
    const how = ended.trim().slice('ended'.length).trim();
    say(made.children[0], `${clock(death.at_s * 1e3)} ${death.worker} (${death.role}): ${how}`);
    say(made.children[1], death.block);
  });
  const some = newest.some((death) => !death.isWhole);
  say($('deaths-note'), !newest.length ? 'none since the pool started' : some
    ? 'A token with the scope operate shows programs, models and standard error too.' : '');
}
