// The charts: drawings for the eye, and tables with the same facts.

const KINDS = ['OK', 'FAILED', 'DEADLINE', 'POISON', 'DEVICE_LOST', 'CANCELLED'];
// In the order of the lists that a point has of them.
const ROLES = ['grid', 'infer'];
const DOINGS = { r: 'ready', b: 'busy', c: 'starts or ends', d: 'restarted', o: 'out of service' };
// Of the names and numbers at the left, in pixels.
const LEFT = 96;
const NARROW = 480;

const timeline = { lines: [], fine: [], coarse: [] };
const LENGTHS = { fine: [120, 120e3], coarse: [360, 3600e3] };

// Takes a point of a second in. Names of lines come with it if they are others than before. Points of ten seconds come
// with the next stream.
function addPoint({ lines, point }) {
  if (lines) timeline.lines = lines;
  const points = timeline.fine;
  if (points.length && points[points.length - 1].at_ms >= point.at_ms) return;
  points.push(point);
  while (points.length > LENGTHS.fine[0]) points.shift();
}

// The lines that have a name, by their places in a point.
const namedLines = () => Array.from(timeline.lines.keys()).filter((line) => timeline.lines[line]);

// The points of the span that is shown; the hour ends with the seconds that make no whole point yet.
function shown() {
  const which = $('span').value;
  if (which === 'fine') return timeline.fine;
  const last = timeline.coarse.length ? timeline.coarse[timeline.coarse.length - 1].at_ms : 0;
  return timeline.coarse.concat(timeline.fine.filter((point) => point.at_ms > last + 500));
}

const sum = (list) => list.reduce((all, one) => all + one, 0);
const perSecond = (point, count) => count / (point.span_ms / 1e3);

// A drawing of this height, with a place on the x axis for a time.
function canvas(place, height, title) {
  const points = shown();
  const end = points.length ? points[points.length - 1].at_ms : Date.now();
  const length = LENGTHS[$('span').value][1];
  // As wide as there is room, so that texts keep their size.
  const width = place.clientWidth || 2 * NARROW;
  const x = (ms) => LEFT + Math.max(0, 1 - (end - ms) / length) * (width - LEFT);
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height + 16}`, role: 'img', 'aria-label': title });
  for (let part = 0; part <= 4; part += width < NARROW ? 2 : 1) {
    const at = end - (length * (4 - part)) / 4;
    svg.append(draw('line', { x1: x(at), x2: x(at), y1: 0, y2: height, class: 'axis' }));
    const anchor = part === 4 ? 'end' : 'start';
    svg.append(draw('text', { x: x(at), y: height + 13, 'text-anchor': anchor }, clock(at)));
  }
  place.replaceChildren(svg);
  return { svg, points, x };
}

function drawLines() {
  const rowHeight = 20;
  const named = namedLines();
  const height = Math.max(1, named.length) * rowHeight;
  const { svg, points, x } = canvas($('lines'), height, 'What each device did; the table below says the same');
  named.forEach((index, row) => {
    const name = timeline.lines[index];
    const top = row * rowHeight;
    svg.append(draw('text', { x: 0, y: top + 14 }, name.length > 15 ? `${name.slice(0, 14)}…` : name));
    // Neighbours that are the same make one rectangle.
    let begin = 0;
    for (let at = 0; at < points.length; at += 1) {
      const letter = points[at].doing[index] || '.';
      const next = points[at + 1];
      if (next && (next.doing[index] || '.') === letter && next.at_ms - points[at].at_ms < 1.5 * next.span_ms) continue;
      const from = x(points[begin].at_ms - points[begin].span_ms);
      if (letter !== '.') {
        const width = Math.max(1, x(points[at].at_ms) - from);
        svg.append(draw('rect', { x: from, y: top + 3, width, height: 14, class: `f-${letter}` }));
      }
      begin = at + 1;
    }
  });
  const share = (line, letter) => {
    const all = sum(points.map((point) => point.span_ms));
    const own = sum(points.filter((point) => point.doing[line] === letter).map((point) => point.span_ms));
    return all ? percent((100 * own) / all) : UNKNOWN;
  };
  const busy = (line) => {
    const known = points.map((point) => point.busy[line]).filter((value) => value !== null && value !== undefined);
    return known.length ? percent(sum(known) / known.length) : UNKNOWN;
  };
  const columns = [['Device and group', (line) => timeline.lines[line]]]
    .concat(Object.entries(DOINGS).map(([letter, words]) => [words, (line) => share(line, letter)]))
    .concat([['utilisation', busy]]);
  table($('lines-table'), 'Shares of the time that is shown', columns, named, String, 'nothing yet');
}

function drawRates() {
  const height = 110;
  const { svg, points, x } = canvas($('verdicts'), height, 'Verdicts a second; the table below says the same');
  const others = (point) => sum(point.verdicts.slice(1));
  const most = Math.max(1, ...points.map((point) => perSecond(point, sum(point.verdicts))));
  const queue = Math.max(1, ...points.map((point) => point.queue));
  svg.append(draw('text', { x: 0, y: 12 }, `${rate(most)} /s`), draw('text', { x: 0, y: 28 }, `${number(queue)} wait`));
  for (const point of points) {
    const from = x(point.at_ms - point.span_ms);
    const width = Math.max(0.5, x(point.at_ms) - from);
    let top = height;
    for (const [count, kind] of [[point.verdicts[0], 'f-v0'], [others(point), 'f-v1']]) {
      const tall = (perSecond(point, count) / most) * (height - 4);
      top -= tall;
      if (tall > 0) svg.append(draw('rect', { x: from, y: top, width, height: tall, class: kind }));
    }
  }
  polyline(svg, points, x, (point) => height - 1 - (point.queue / queue) * (height - 5), 'f-q');
  const latest = timeline.fine.slice(-10).reverse();
  const columns = [['Second to', (point) => clock(point.at_ms)]]
    .concat(KINDS.map((kind, index) => [kind, (point) => number(point.verdicts[index])]))
    .concat([['accepted', (point) => number(point.accepted)], ['refused', (point) => number(point.refused)]])
    .concat([['wait', (point) => number(point.queue)]])
    .concat(ROLES.map((role, index) => [`wait for ${role}`, (point) => number(point.queues[index])]));
  table($('verdicts-table'), 'The last ten seconds', columns, latest, (_, index) => String(index), 'nothing yet');
}

// A line through the points that have a value.
function polyline(svg, points, x, y, kind) {
  const known = points.map((point) => [x(point.at_ms), y(point)]).filter(([, at]) => at !== null);
  const text = known.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`).join(' ');
  svg.append(draw('polyline', { points: text, class: kind }));
}

// Two lines for each role that had jobs, each over the time of its own longest: a model may take a thousand times as
// long as a program.
function drawLatency() {
  const height = 90;
  const { svg, points, x } = canvas($('latency'), height, 'Time in workers; the table below has the last numbers');
  ROLES.forEach((role, index) => {
    const times = points.map((point) => point.service_s[index]).filter(Boolean);
    if (!times.length) return;
    const most = Math.max(1e-6, ...times.map((all) => all[2]));
    svg.append(draw('text', { x: 0, y: 12 + 16 * index }, `${role} ${span(most)}`));
    for (const [which, kind] of [[0, 'f-p0'], [2, 'f-p2']]) {
      const y = ({ service_s: all }) => (all[index] ? height - 1 - (all[index][which] / most) * (height - 5) : null);
      polyline(svg, points, x, y, `${kind} r-${role}`);
    }
  });
  const latest = (key, index) =>
    timeline.fine.slice(-10).reverse().map((point) => point[key][index]).find(Boolean);
  const rows = ROLES.flatMap((role, index) => [
    [role, 'from acceptance to dispatch', latest('queue_s', index)], [role, 'in workers', latest('service_s', index)],
    [role, 'from acceptance to the verdict', latest('total_s', index)],
  ]);
  const part = (index) => ([, , all]) => known(all && all[index], span);
  const columns = [
    ['Role', ([role]) => role], ['Time', ([, name]) => name], ['p50', part(0)], ['p90', part(1)], ['p99', part(2)],
  ];
  const title = 'Of the last second with jobs, of the last ten';
  table($('latency-table'), title, columns, rows, ([role, name]) => `${role} ${name}`);
}

function drawTimeline() {
  drawLines();
  drawRates();
  drawLatency();
}
