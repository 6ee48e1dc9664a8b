// What every part of the page needs: nodes, tables, numbers in words, requests. Text from outside becomes text.
'use strict';

const $ = (id) => document.getElementById(id);

// A node with a text, if one is given, and attributes.
function node(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

const SVG = 'http://www.w3.org/2000/svg';
function draw(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Sets a text, unless it is there already: a screen reader and a selection then stay where they are.
function say(where, text) {
  const words = String(text);
  if (where.textContent !== words) where.textContent = words;
}

// Keeps a node for each entry of a list, in its order, so that the focus stays on what it is on.
function keep(parent, list, key, make, fill) {
  const known = new Map();
  for (const child of Array.from(parent.children)) {
    // Of two entries with one key the second is made anew each time.
    if (known.has(child.dataset.key)) child.remove();
    known.set(child.dataset.key, known.get(child.dataset.key) || child);
  }
  list.forEach((entry, index) => {
    const name = key(entry, index);
    let child = known.get(name);
    if (!child) {
      child = make(entry);
      child.dataset.key = name;
    }
    known.delete(name);
    fill(child, entry);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] || null);
  });
  for (const gone of known.values()) gone.remove();
}

// A table in `place`: `columns` are pairs of a title and a function that gives the text of a cell, or fills it.
// Narrow screens show a row as a card. The roles say that it is a table still.
function table(place, title, columns, list, key, none) {
  if (!list.length) {
    if (place.firstChild?.nodeName !== 'P') place.replaceChildren(node('p', '', { class: 'soft' }));
    return say(place.firstChild, none || '');
  }
  if (place.firstChild?.nodeName !== 'TABLE') {
    const made = node('table', undefined, { class: 'cards', role: 'table' });
    const head = node('tr', undefined, { role: 'row' });
    for (const [name] of columns) head.append(node('th', name, { scope: 'col', role: 'columnheader' }));
    const thead = node('thead', undefined, { role: 'rowgroup' });
    thead.append(head);
    made.append(node('caption'), thead, node('tbody', undefined, { role: 'rowgroup' }));
    place.replaceChildren(made);
  }
  say(place.firstChild.caption, title);
  const make = () => {
    const row = node('tr', undefined, { role: 'row' });
    for (const [name] of columns) row.append(node('td', undefined, { role: 'cell', 'data-label': name }));
    return row;
  };
  keep(place.firstChild.tBodies[0], list, key, make, (row, entry) => {
    columns.forEach(([, cell], index) => {
      const words = cell(entry, row.cells[index]);
      if (words !== undefined) say(row.cells[index], words);
    });
  });
}

// A button in a cell, made once.
function button(cell, words, title, press) {
  let made = cell.firstChild;
  if (!made) {
    made = node('button', words, { type: 'button' });
    cell.append(made);
  }
  if (made.getAttribute('aria-label') !== title) made.setAttribute('aria-label', title);
  made.onclick = press;
}

// ---- numbers in words ----

const UNKNOWN = '–';
const known = (value, write) => (value === null || value === undefined ? UNKNOWN : write(value));
const number = (value) => Math.round(value).toLocaleString('en-US');
const rate = (value) => known(value, (v) => (v > 0 && v < 9.95 ? v.toFixed(1) : number(v)));
const percent = (value) => known(value, (v) => `${Math.round(v)} %`);

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds < 0.0995e-3) return `${Math.round(seconds * 1e6)} us`;
  if (seconds < 0.995) return `${(seconds * 1e3).toPrecision(seconds < 0.0995 ? 2 : 3)} ms`;
  if (seconds < 120) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');

// ---- requests ----

// In the memory of this page alone.
let token = '';

const authorized = (headers) => (token ? { ...headers, Authorization: `Bearer ${token}` } : { ...headers });

// The document of an answer; an error has the server's sentence.
async function request(path, body) {
  const post = body !== undefined;
  const answer = await fetch(path, {
    method: post ? 'POST' : 'GET',
    headers: authorized(post ? { 'Content-Type': 'application/json' } : {}),
    body: post ? JSON.stringify(body) : undefined,
    cache: 'no-store', credentials: 'omit', redirect: 'error',
  });
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const error = new Error(document.error || `the server answered ${answer.status}`);
    error.status = answer.status;
    throw error;
  }
  return document;
}
