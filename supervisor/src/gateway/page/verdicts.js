// The last verdicts of the pool's log, however their jobs came: a list that follows the pool, and the chosen receipt.

// As many as are shown, and how often at most the list is asked for.
const VERDICTS_MAX = 64;
const VERDICTS_EVERY_MS = 1000;

// What is asked for: the verdicts of a kind, and those of a job, as the fields had them when they were left.
const chosen = { verdict: '', job: '' };

const wantedVerdicts = () => new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();

// What the list has, the newest first, and the number of the newest that was asked for.
const verdicts = { rows: [], last: 0, isAsking: false, isRefused: false, whole: false };

const verdictKey = (row) => `${row.time} ${row.receipt.job} ${row.receipt.key}`;

// The program's kernels or the model of a job, or the beginning of its hash if it never ran.
function ran(receipt) {
  const models = receipt.attempts.map((attempt) => attempt.infer?.model).filter(Boolean);
  const kernels = receipt.attempts.flatMap((attempt) => attempt.kernels.map(({ name }) => name));
  const names = Array.from(new Set(models.length ? models : kernels));
  const more = names.length > 3 ? ` and ${names.length - 3} more` : '';
  return names.slice(0, 3).join(', ') + more || receipt.program_hash.slice(0, 12) || UNKNOWN;
}

const distinct = (list) => Array.from(new Set(list.filter(Boolean))).join(', ');

function choose(row) {
  const { receipt } = row;
  const capsules = distinct(receipt.attempts.map((attempt) => attempt.capsule));
  const shown = [node('h3', `Receipt of ${receipt.job}`), facts(receipt)];
  if (capsules) shown.push(node('p', `Run again what its worker died of: gridpool replay ${capsules}`));
  $('last-receipt').replaceChildren(...shown);
  $('last-receipt').focus();
}

function drawVerdicts() {
  const { rows, whole } = verdicts;
  const whose = whole ? 'of all clients' : 'of yours';
  table($('last-verdicts'), `The last verdicts ${whose}, the newest first`, [
    ['Job', (row, cell) => button(cell, row.receipt.job, `Receipt of ${row.receipt.job}`, () => choose(row))],
    ['When', (row) => clock(Date.parse(row.time))],
    ['Verdict', (row, cell) => {
      cell.className = row.receipt.verdict === 'OK' ? '' : 'bad';
      return row.receipt.verdict;
    }],
    ['Program or model', (row) => ran(row.receipt)],
    ['Device', (row) => distinct(row.receipt.attempts.map(({ device }) => `${device.kind}${device.index}`)) || UNKNOWN],
    ['Time', (row) => span(row.receipt.total_us / 1e6)],
    ['Principal', (row) => row.principal],
    ['Capsule', (row) => distinct(row.receipt.attempts.map(({ capsule }) => capsule))],
  ], rows, verdictKey, chosen.job
    ? `not among the last verdicts: gridpool jobs ${chosen.job} looks into the whole log` : 'none yet');
}

// Takes back what was shown, and asks again when the pool says that there are verdicts.
function forgetVerdicts() {
  Object.assign(verdicts, { rows: [], last: 0, isRefused: false, whole: false });
  $('last-verdicts').replaceChildren();
  $('last-receipt').replaceChildren();
  say($('last-verdicts-note'), '');
}

// Asks for what is new, at most once a second. What comes meanwhile is asked for after that.
async function followVerdicts() {
  if (verdicts.isAsking || verdicts.isRefused || !state || document.hidden) return;
  if (!state.last_verdict) say($('last-verdicts-note'), 'this pool keeps no log: it has no state folder (state_dir)');
  if (state.last_verdict === verdicts.last) return;
  verdicts.isAsking = true;
  const [own, wanted] = [token, wantedVerdicts()];
  const isSame = () => token === own && wantedVerdicts() === wanted;
  try {
    // Numbers of a pool whose clock was set back are smaller.
    const after = state.last_verdict < verdicts.last ? 0 : verdicts.last;
    const found = await request(`v2/gridpool/verdicts?after=${after}&${wanted}`);
    if (isSame()) {
      const fresh = found.verdicts.reverse();
      const known = new Set(fresh.map(verdictKey));
      const kept = verdicts.rows.filter((row) => !known.has(verdictKey(row)));
      verdicts.rows = fresh.concat(kept).slice(0, VERDICTS_MAX);
      [verdicts.last, verdicts.whole] = [found.last, found.all];
      say($('last-verdicts-note'), '');
      drawVerdicts();
    }
  } catch (error) {
    if (isSame()) {
      say($('last-verdicts-note'), error.message);
      // Another token may see them, or another question be one.
      verdicts.isRefused = [400, 401, 403].includes(error.status);
    }
  } finally {
    setTimeout(() => {
      verdicts.isAsking = false;
      followVerdicts();
    }, VERDICTS_EVERY_MS);
  }
}
