// A program over an ARC task: the pool runs it, the page shows grids in colour and the receipt.

const SIDE = 30;
const COLOURS = ['black', 'blue', 'red', 'green', 'yellow', 'grey', 'magenta', 'orange', 'sky', 'maroon'];

// The pairs of a task: an input, and what the output should be if the task says so.
function pairsOf(text) {
  let task;
  try {
    task = JSON.parse(text);
  } catch (error) {
    throw new Error(`the task is not valid JSON: ${error.message}`);
  }
  if (Array.isArray(task)) task = { test: [{ input: task }] };
  const named = ['train', 'test'].flatMap((part) => (Array.isArray(task[part]) ? task[part] : [])
    .map((pair, index) => ({ name: `${part} ${index + 1}`, input: pair.input, expected: pair.output })));
  if (!named.length) throw new Error('the task has no pairs: it needs a list `train` or `test`');
  for (const pair of named) {
    if (!isGrid(pair.input)) throw new Error(`the input of ${pair.name} is no grid of at most ${SIDE} x ${SIDE} cells`);
    if (!isGrid(pair.expected)) pair.expected = null;
  }
  return named;
}

function isGrid(grid) {
  const isRow = (row) => Array.isArray(row) && row.length === grid[0].length
    && row.every((cell) => Number.isInteger(cell) && cell >= 0 && cell <= 9);
  return Array.isArray(grid) && grid.length >= 1 && grid.length <= SIDE && Array.isArray(grid[0])
    && grid[0].length >= 1 && grid[0].length <= SIDE && grid.every(isRow);
}

const sizesOf = (grids) => grids.flatMap((grid) => [grid.length, grid[0].length]);

// Runs a program over grids: the results, with an error in place of each that is none, and the receipt.
async function run(program, grids) {
  const cells = new Array(grids.length * SIDE * SIDE).fill(0);
  grids.forEach((grid, item) => grid.forEach((row, y) => row.forEach((cell, x) => {
    cells[(item * SIDE + y) * SIDE + x] = cell;
  })));
  const count = grids.length;
  const answer = await request('v2/models/program/infer', {
    parameters: { program },
    inputs: [
      { name: 'GRID', datatype: 'UINT8', shape: [count, SIDE, SIDE], data: cells },
      { name: 'SIZE', datatype: 'INT32', shape: [count, 2], data: sizesOf(grids) },
    ],
  });
  const of = (name) => answer.outputs.find((output) => output.name === name).data;
  const [out, sizes, codes] = [of('GRID'), of('SIZE'), of('STATUS')];
  const errors = new Map(JSON.parse(answer.parameters.errors || '[]').map((error) => [error.item, error]));
  const results = grids.map((_, item) => {
    if (codes[item]) return { error: JSON.stringify(errors.get(item) || { code: codes[item] }) };
    const [height, width] = sizes.slice(2 * item, 2 * item + 2);
    const row = (y) => out.slice((item * SIDE + y) * SIDE, (item * SIDE + y) * SIDE + width);
    return { grid: Array.from({ length: height }, (_, y) => row(y)) };
  });
  return { results, receipt: JSON.parse(answer.parameters.receipt) };
}

// A solver that gives each object a colour of its own; after nine they begin anew. The pool finds the objects.
function objectsProgram() {
  const flag = (id) => ($(id).checked ? 'T' : 'F');
  const flags = ['univalued', 'diagonal', 'without-background'].map(flag).join(', ');
  const more = Array.from({ length: 7 }, (_, at) => `c${at + 1} = combine(c${at}, c${at})`);
  return [
    `found = objects(I, ${flags})`, 'ordered = order(found, ulcorner)', 'c0 = interval(ONE, TEN, ONE)', ...more,
    'cells = mpapply(recolor, c7, ordered)', 'size = shape(I)', 'ground = canvas(ZERO, size)',
    'O = paint(ground, cells)',
  ].map((line) => line.replace(/\b(found|ordered|cells|size|ground|c\d)\b/g, (name) => `x${NAMES.indexOf(name) + 1}`))
    .join('\n');
}
const NAMES = ['found', 'ordered', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'cells', 'size', 'ground'];

function drawGrid(title, grid) {
  const figure = node('figure');
  const [height, width] = [grid.length, grid[0].length];
  const says = `${title}: ${height} rows, ${width} columns`;
  const box = { viewBox: `0 0 ${width} ${height}`, 'shape-rendering': 'crispEdges' };
  const svg = draw('svg', { ...box, role: 'img', 'aria-label': says });
  grid.forEach((row, y) => row.forEach((cell, x) => {
    if (cell) svg.append(draw('rect', { x, y, width: 1, height: 1, class: `c${cell}` }));
  }));
  const across = Array.from({ length: height - 1 }, (_, y) => `M0 ${y + 1}H${width}`);
  const down = Array.from({ length: width - 1 }, (_, x) => `M${x + 1} 0V${height}`);
  svg.append(draw('path', { d: across.concat(down).join(''), class: 'cells' }));
  const numbers = node('details');
  const colours = Array.from(new Set(grid.flat())).sort().map((cell) => `${cell} ${COLOURS[cell]}`);
  numbers.append(node('summary', 'as numbers'), node('pre', grid.map((row) => row.join(' ')).join('\n')),
    node('p', colours.join(', '), { class: 'soft' }));
  figure.append(node('figcaption', title), svg, numbers);
  return figure;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function showPair(pair, result, objects) {
  const part = node('div', undefined, { class: 'pair' });
  const heading = node('h3', pair.name);
  const grids = node('div', undefined, { class: 'grids' });
  grids.append(drawGrid('input', pair.input));
  if (objects.grid) grids.append(drawGrid('objects', objects.grid));
  if (result.grid) grids.append(drawGrid('output', result.grid));
  if (pair.expected) grids.append(drawGrid('expected', pair.expected));
  part.append(heading, grids);
  if (result.error) part.append(node('p', `no result: ${result.error}`, { class: 'bad' }));
  if (objects.error) part.append(node('p', `no objects: ${objects.error}`, { class: 'bad' }));
  if (result.grid && pair.expected) {
    const right = same(result.grid, pair.expected);
    part.append(node('p', right ? 'The output is as expected.' : 'The output is not as expected.',
      { class: right ? 'good' : 'bad' }));
  }
  return part;
}

async function tryProgram(event) {
  event.preventDefault();
  $('run').disabled = true;
  say($('try-state'), 'running');
  try {
    const pairs = pairsOf($('task').value);
    const inputs = pairs.map((pair) => pair.input);
    const failed = (error) => ({ results: inputs.map(() => ({ error: error.message })) });
    const [{ results, receipt }, objects] = await Promise.all([
      run($('program').value, inputs), run(objectsProgram(), inputs).catch(failed),
    ]);
    const whole = node('details', undefined, { open: '' });
    whole.append(node('summary', `Receipt of ${receipt.job}`), facts(receipt));
    $('pairs').replaceChildren(whole, ...pairs.map((pair, at) => showPair(pair, results[at], objects.results[at])));
    const right = pairs.filter((pair, at) => pair.expected && same(results[at].grid, pair.expected)).length;
    const checked = pairs.filter((pair) => pair.expected).length;
    say($('try-state'), `${receipt.verdict}: ${right} of ${checked} outputs are as expected`);
  } catch (error) {
    $('pairs').replaceChildren();
    say($('try-state'), error.message);
  }
  $('run').disabled = false;
}

// How an attempt ended, and the file for `gridpool replay` if there is one.
function outcome(attempt) {
  const why = attempt.detail ? `: ${attempt.detail}` : '';
  return attempt.outcome + why + (attempt.capsule ? `; capsule ${attempt.capsule}` : '');
}

// What a receipt proves: where and how a job ran.
function facts(receipt) {
  const part = node('div');
  const list = [
    ['verdict', receipt.verdict + (receipt.reason ? `: ${receipt.reason}` : '')],
    ['items', `${number(receipt.items)}, ${number(receipt.item_errors)} with an error`],
    ['waited', span(receipt.queue_us / 1e6)],
    ['in all', span(receipt.total_us / 1e6)],
    ['program', receipt.program_hash],
  ];
  const made = node('dl', undefined, { class: 'tiles' });
  for (const [name, value] of list) {
    const tile = node('div', undefined, value.length > 24 ? { class: 'wide' } : {});
    tile.append(node('dt', name), node('dd', value));
    made.append(tile);
  }
  const attempts = node('div');
  table(attempts, 'Attempts', [
    ['Worker', (attempt) => attempt.worker],
    ['Outcome', outcome],
    ['Device', (attempt) => `${attempt.device.name} ${attempt.device.uuid}`],
    ['Items', (attempt) => `${attempt.part.start} to ${attempt.part.end}`],
    ['Kernels', (attempt) => attempt.kernels.map(({ name, device_us: us }) => `${name} ${span(us / 1e6)}`).join(', ')],
    ['In the worker', (attempt) => span(attempt.service_us / 1e6)],
  ], receipt.attempts, (_, index) => String(index), 'it never ran');
  part.append(made, attempts);
  return part;
}
