#!/usr/bin/env bash
# Plants one bug at a time in a copy of the pool's core and runs the simulator against it. A simulator
# that stays green proves little until every one of these makes it red. MUTANTS.md has the table.
#
#   tests/sim/mutants.sh [seeds] [name-part]
#
# Works on a copy under target/mutants; the working tree is only read.
set -euo pipefail

seeds=${1:-2000}
only=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$root/target/mutants/gridpool
export CARGO_TARGET_DIR=$root/target/mutants/target
# Most of the time goes into building.
export CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_INCREMENTAL=true
caught=0 missed=0 broken=0

rm -rf "$copy"
mkdir -p "$copy/src" "$copy/tests"
cp -r "$root/protocol" "$copy/protocol"
cp -r "$root/tests/sim" "$copy/tests/sim"
cp "$root/Cargo.lock" "$copy/Cargo.lock"
printf '//! The core alone.\npub mod pool;\n' >"$copy/src/lib.rs"
# The workspace as it is, with the core alone for a supervisor.
{
    sed -e 's/^members = .*/members = [".", "protocol"]/' "$root/Cargo.toml"
    cat <<'TOML'

[package]
name = "gridpool"
version.workspace = true
edition.workspace = true

[dependencies]
gridpool-protocol = { path = "protocol" }
nix.workspace = true

[[test]]
name = "sim"
path = "tests/sim/main.rs"
TOML
} >"$copy/Cargo.toml"

fresh() {
    rm -rf "$copy/src/pool"
    cp -r "$root/supervisor/src/pool" "$copy/src/pool"
}

simulate() {
    (cd "$copy" && SIM_SEEDS=$seeds timeout 300 \
        cargo test --offline --release --quiet --test sim every_rule 2>&1)
}

# mutant NAME FILE PERL: plants the bug that the substitution makes.
mutant() {
    local name=$1 file=$copy/src/pool/$2 change=$3 output rule seed
    [[ $name == *"$only"* ]] || return 0
    fresh
    perl -0pi -e "$change" "$file"
    if cmp -s "$file" "$root/supervisor/src/pool/$2"; then
        broken=$((broken + 1))
        printf '| %s | NOT PLANTED | the text it changes is gone |\n' "$name"
        return 0
    fi
    if output=$(simulate); then
        missed=$((missed + 1))
        printf '| %s | MISSED | |\n' "$name"
        return 0
    fi
    rule=$(sed -n 's/^broken: //p' <<<"$output" | head -1)
    seed=$(sed -n 's/^replay: SIM_SEED=//p' <<<"$output" | head -1)
    if [[ -z $rule ]] && grep -q 'did not reach these' <<<"$output"; then
        rule='(coverage)' seed=$seeds
    fi
    if [[ -z $rule ]]; then
        broken=$((broken + 1))
        printf '| %s | NOT BUILT | %s |\n' "$name" "$(grep -m1 '^error' <<<"$output")"
        return 0
    fi
    caught=$((caught + 1))
    printf '| %s | seed %s | %s |\n' "$name" "$seed" "$rule"
}

fresh
simulate >/dev/null || { echo "the simulator fails without any bug planted" >&2; exit 1; }
printf '| bug | caught by | rule |\n|---|---|---|\n'

# Generations and messages
mutant 'no generation fence' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process/slot.device == worker.device && slot.has_process/'
mutant 'a dead process is still heard' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process\(\)/slot.worker() == worker/'
mutant 'an answer for another attempt of the job counts' outstanding.rs 's/position\(\|sent\| sent\.attempt == attempt\)/position(|sent| sent.attempt.job == attempt.job)/'
mutant 'the answer of a worker being killed is dropped' slot.rs 's/let outstanding = all\.as_mut\(\)/if jobless(\&self.device) { return false; }\n                let outstanding = all.as_mut()/; s/\z/fn jobless(_: \&DeviceId) -> bool { true }\n/'
mutant 'stale messages are not counted' workers.rs 's/None => self\.counters\.stale \+= 1/None => {}/'

# Jobs
mutant 'poison one death late' losses.rs 's/job\.deaths >= self/job.deaths > self/'
mutant 'poison one death early' losses.rs 's/job\.deaths >= self/job.deaths + 1 >= self/'
mutant 'a hang is no evidence' losses.rs 's/\(AttemptOutcome::Hang, true\)/(AttemptOutcome::Hang, false)/'
mutant 'a bare SIGKILL is evidence' losses.rs 's/\(AttemptOutcome::WorkerDied, false\)/(AttemptOutcome::WorkerDied, true)/'
mutant 'one attempt too many' losses.rs 's/tries >= self\.config/tries > self.config/'
mutant 'one attempt too few' losses.rs 's/tries >= self\.config/tries + 1 >= self.config/'
mutant 'idempotent is ignored' losses.rs 's/!job\.request\.idempotent/false/'
mutant 'device errors do not count' workers.rs 's/job\.parts\[part\]\.device_errors \+= 1;//'
mutant 'a job is lost with a worker that was killed' slot.rs 's/(SlotState::Killed \{ outstanding, \.\. \} => )outstanding,/$1 outstanding.filter(|_| false),/'
mutant 'a job is lost with an unkillable worker' losses.rs 's/if let Some\(outstanding\) = outstanding \{/if let Some(outstanding) = outstanding.filter(|_| false) {/'
mutant 'the deadline is checked one tick late' upkeep.rs 's/if at > now \{\n(\s+)return/if at >= now {\n$1return/'
mutant 'the pool does not wake for deadlines' mod.rs 's/slots\.chain\(job\)\.chain\(drain\)/job.filter(|_| false).into_iter().chain(slots).chain(drain)/'
mutant 'a late job does not free its device' outstanding.rs 's/\.free_at = Some\(at\);/.free_at = Some(at.after(Duration::from_secs(3_600)));/'
mutant 'a cancelled job has no grace' slot.rs 's/if at_once \{ now \} else \{ now\.after\(grace\) \}/if at_once { now } else { now.after(grace * 0) }/'
mutant 'anybody may cancel' clients.rs 's/if self\.jobs\[&job\]\.client != client/if false \&\& self.jobs[\&job].client != client/'
mutant 'the verdict is given twice' mod.rs 's/(self\.actions\.push_back\(Action::Finish \{ client, job: id, key, receipt: Box::new\(receipt)(\) \}\);)/let again = Box::new(receipt.clone()); $1$2 if again.attempts.len() > 1 { self.actions.push_back(Action::Finish { client, job: id, key, receipt: again }); }/'
mutant 'a receipt forgets the attempt that was cut off' losses.rs 's/job\.failed\(part, slot\.device_info\(\), outcome, String::new\(\)\);/job.parts[part].state = super::part::PartState::Ended;/'

# Clients
mutant 'queue one too deep' clients.rs 's/self\.queue\.jobs\(\) >= self/self.queue.jobs() > self/'
mutant 'one job too many for a client' clients.rs 's/own >= self\.config/own > self.config/'
mutant 'one byte too few' clients.rs 's/request\.inline_bytes > self\.config/request.inline_bytes >= self.config/'
mutant 'bytes are not given back' mod.rs 's/self\.inline_bytes -= job\.request\.inline_bytes;//'
mutant 'a drain accepts jobs' clients.rs 's/if self\.phase != Phase::Serving \{/if matches!(self.phase, Phase::Leaving | Phase::Left) {/'
mutant 'a replayed key runs again' clients.rs 's/self\.verdicts\.find\(key\) \{/self.verdicts.find(key).filter(|_| false) {/'
mutant 'a key of another client is accepted' clients.rs 's/live\.client == client\n\s*&& //'
mutant 'one verdict too many is kept' verdicts.rs 's/self\.order\.len\(\) > self\.kept/self.order.len() > self.kept + 1/'
mutant 'the verdict of a vanished client is remembered' mod.rs 's/if client\.is_some\(\) \{\n(\s+)self\.verdicts/if true {\n$1self.verdicts/'
mutant 'queued jobs outlive their client' clients.rs 's/self\.unqueue\(id\);//'
mutant 'the job of a vanished client runs again' losses.rs 's/if job\.orphaned \{/if false {/g'

# Devices
mutant 'quarantine one death late' slot.rs 's/idle_deaths >= config/idle_deaths > config/'
mutant 'quarantine one death early' slot.rs 's/idle_deaths >= config/idle_deaths + 1 >= config/'
mutant 'quarantine one failed start late' slot.rs 's/start_failures >= config/start_failures > config/'
mutant 'failed starts are not forgiven' slot.rs 's/self\.start_failures = 0;//'
mutant 'old deaths count for ever' slot.rs 's/now\.since\(at\) > config\.restart_window/false/'
mutant 'a bare SIGKILL counts against the device' workers.rs 's/(if response == Response::Retry =>) Blame::Outside/$1 Blame::Device/'
mutant 'freeing a device counts against it' workers.rs 's/=> Blame::Pool/=> Blame::Device/'
mutant 'exit code 73 is tried again' workers.rs 's/\[response, of_exit\]\.contains\(&Response::Halt\)/exit.code() != gridpool_protocol::fault::FaultCode::Exit(73) \&\& [response, of_exit].contains(\&Response::Halt)/'
mutant 'a program that is not there is started again' workers.rs 's/blame, response == Response::Halt, false/blame, false, false/'
mutant 'a start that failed for want of descriptors counts' workers.rs 's/false => Blame::Outside/false => Blame::Device/'
mutant 'a job of a worker killed from outside avoids its device' losses.rs 's/job\.parts\[part\]\.avoid = None;//'
mutant 'a pause is not excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap > PAUSE_MIN * 1_000 {/'
mutant 'a short pause is excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap * 2 >= PAUSE_MIN {/'
mutant 'a pause excuses silence alone' slot.rs 's/\*at = at\.after\(gap\)/_ = (at, gap)/'
mutant 'a pause excuses no grace' outstanding.rs 's/sent\.free_at = sent\.free_at\.map\(\|at\| at\.after\(gap\)\);//'
mutant 'the report names the wrong worker' mod.rs 's/find\(\|slot\| slot\.device == device\);\n(\s+)slot\.filter/find(|slot| slot.device <= device);\n$1slot.filter/'
mutant 'a device that was READY once counts as misconfigured' slot.rs 's/self\.never_ready = false;//'
mutant 'a receipt does not name the device' slot.rs 's/self\.info = Some\(info\);/let _ = info;/'
mutant 'no backoff' slot.rs 's/now\.after\(wait\)/now.after(wait * 0)/'
mutant 'the first restart waits' slot.rs 's/self\.backoff_steps\.checked_sub\(1\)/self.backoff_steps.checked_sub(0)/'
mutant 'the backoff has no cap' slot.rs 's/\.min\(config\.backoff_max\)//'
mutant 'READY resets the backoff' slot.rs 's/self\.was_ready = true;/self.was_ready = true; self.backoff_steps = 0;/'
mutant 'work does not reset the backoff' slot.rs 's/self\.jobs_done \+= 1;\n\s*self\.backoff_steps = 0;/self.jobs_done += 1;/'
mutant 'a suspect gets a job' slot.rs 's/if now\.since\(self\.last_heard\) < config\.heartbeat_suspect =>/if now.since(self.last_heard) < config.heartbeat_kill =>/'
mutant 'silence is never noticed' slot.rs 's/SlotState::Ready \{ \.\. \} => Some\(silent\)/SlotState::Ready { .. } => None/'
mutant 'a hung worker is given up at once' slot.rs 's/SlotState::Killed \{ give_up_at, \.\. \} => Some\(give_up_at\)/SlotState::Killed { .. } => Some(self.last_heard)/'
mutant 'a device is used beside its unkillable worker' losses.rs 's/slot\.state = SlotState::Unkillable \{ cause \};/slot.state = SlotState::Waiting { until: now };/'
mutant 'a device that is being freed counts as lost' slot.rs 's/\| SlotState::Killed \{ \.\. \}(\n[^}]*\{ \.\. \}\n[^}]*\{ \.\. \}\n[^}]*\{ \.\. \} => true,\n\s+SlotState::Quarantined\n\s+\| SlotState::Stopped\n)/$1 | SlotState::Killed { .. }\n/'
mutant 'the device of the last failure is not avoided' dispatch.rs 's/\(!unwanted\(index\) \|\| !elsewhere\(\)\)/(!unwanted(index) || !elsewhere() || true)/; s/\(unwanted\(index\), since, index\)/(since, index)/'

# Queue
mutant 'a newcomer catches up' queue.rs 's/\.max\(self\.reached\);/;/'
mutant 'work is not charged' queue.rs 's/share\.clock\.saturating_add\(share\.waiting\[&place\]\.cost\)/share.clock.saturating_add(share.waiting[\&place].cost.min(1))/'
mutant 'clients go in order of their number' queue.rs 's/self\.order\.insert\(\(share\.clock, client\)\)/self.order.insert((0, client))/; s/self\.order\.insert\(\(clock, client\)\)/self.order.insert((0, client))/; s/self\.order\.remove\(&\(share\.clock, client\)\)/self.order.remove(\&(0, client))/'
mutant 'the last job of a client goes first' queue.rs 's/let mut places = self\.shares\[&client\]\.waiting\.keys\(\);/let mut places = self.shares[\&client].waiting.keys().rev();/'

# Parts
mutant 'a job that may not run twice is split' part.rs 's/ \|\| !request\.idempotent//'
mutant 'a job whose result cannot be written in parts is split' part.rs 's/ \|\| !request\.divisible//'
mutant 'one part too many' part.rs 's/worth\.min\(most\)\.max\(1\)/(worth + 1).min(most).max(1)/'
mutant 'parts overlap' part.rs 's/end: item\(index \+ 1\) \}/end: (item(index + 1) + 1).min(request.items) }/'
mutant 'a job is OK with its first part' losses.rs 's/if self\.jobs\[&id\]\.has_ended\(\) \{/if true {/'
mutant 'the errors of the last part alone are told' job.rs 's/self\.item_errors\.saturating_add\(report\.item_errors\)/report.item_errors/'
mutant 'parts share their attempts' losses.rs 's/let tries = tried\.tries;/let tries: u32 = job.parts.iter().map(|part| part.tries).sum();/'
mutant 'parts run on after the verdict' losses.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//'
mutant 'the parts beside one that failed have a grace alone' losses.rs 's/match outcome == AttemptOutcome::Preempted \{/match false {/'
mutant 'parts that run count as waiting' queue.rs 's/self\.jobs \+= usize::from\(!share\.has\(place\)\);/self.jobs += 1;/; s/self\.jobs -= usize::from\(!share\.has\(place\)\);/self.jobs -= 1;/'

# Second batches
mutant 'a second batch is sent though a device idles' dispatch.rs 's/match self\.slots\.iter\(\)\.any\(is_idle\) \{/match !self.slots.iter().any(|slot| slot.feeds_beside(now, \&self.config).is_some()) {/'
mutant 'a second batch waits behind a long one' slot.rs 's/\n\s+&& front\.cost <= config\.feed_cost_max//'
mutant 'a long batch is sent to wait' dispatch.rs 's/part\.cost > config\.feed_cost_max \|\| //'
mutant 'a second batch goes out though another device is about to serve' dispatch.rs 's/if slots\.iter\(\)\.any\(soon\)/if false && slots.iter().any(soon)/'
mutant 'joins make a second batch long' dispatch.rs 's/join_cost_max\.min\(self\.config\.feed_cost_max\)/join_cost_max/'
mutant 'a second batch goes to the most loaded' dispatch.rs 's/open\.min\(\)/open.max()/'
mutant 'a second batch is sent to a worker that may be killed soon' slot.rs 's/\n\s+&& !front\.is_cut_off\(\);/;/'
mutant 'a suspect gets a second batch' slot.rs 's/let may = now\.since\(self\.last_heard\) < config\.heartbeat_suspect\n\s+&& /let may = /'
mutant 'a job that may not run twice is sent early' dispatch.rs 's/ \|\| !job\.request\.idempotent \{/ {/'
mutant 'a second batch goes where its job failed' dispatch.rs 's/filter\(\|\(_, slot\)\| !avoids\(part, slot\.device\)\)/filter(|_| true)/'
mutant 'small jobs overtake a large one for ever' dispatch.rs 's/self\.queue\.take_first\(/self.queue.take(/'
mutant 'no second batch is ever sent' slot.rs 's/may\.then_some\(front\.cost\)/may.then_some(front.cost).filter(|_| false)/'
mutant 'the answer of a batch that waits counts' outstanding.rs 's/return Answered::Unknown;/let Some(second) = \&mut self.second else { return Answered::Unknown };\n            second.sent.retain(|sent| sent.attempt != attempt || second.cost == 0);\n            return Answered::Left;/'
mutant 'what is cut off dies as soon as it is in front' outstanding.rs 's/sent\.free_at\.map\(\|at\| at\.max\(now\.after\(grace\)\)\)/sent.free_at.map(|at| if at < now.after(grace) { at } else { now })/'
mutant 'what was cut off before it began is never ended' outstanding.rs 's/sent\.free_at\.map\(\|at\| at\.max\(now\.after\(grace\)\)\)/sent.free_at.filter(|_| false).map(|_| now.after(grace))/'

# Those who wait behind another
mutant 'nobody is killed for those who wait' patience.rs 's/is_none_or\(\|at\| at > now\)/is_none_or(|at| at > now || true)/'
mutant 'the pool does not wake for those who wait' mod.rs 's/\.chain\(patience\)/.chain(patience.filter(|_| false))/'
mutant 'a worker is killed for those who wait though no device idles' patience.rs 's/idles\(other\) && may_take\(other\)/(idles(other) || true) \&\& may_take(other)/'
mutant 'a silent device counts as one that idles' patience.rs 's/\n\s+&& ends < other\.last_heard[^\n]*//'
mutant 'a worker is killed for those who failed on the device that idles' patience.rs 's/idles\(other\) && may_take\(other\)/idles(other) \&\& (may_take(other) || true)/'
mutant 'whoever was waited for is waited for again' dispatch.rs 's/job\.request\.idempotent && !job\.alone;/job.request.idempotent;/'
mutant 'whoever was waited for joins again' patience.rs 's/job\.alone = true;/job.alone |= false;/'
mutant 'somebody waits behind a job that may not run twice' dispatch.rs 's/job\.request\.idempotent && !job\.alone;/!job.alone;/'
mutant 'whoever was waited for is suspect' patience.rs 's/now, index, KillCause::FreeDevice/now, index, KillCause::Hang/'
mutant 'a pause counts as patience' outstanding.rs 's/batch\.since = batch\.since\.after\(gap\);//'

# Joins
mutant 'other programs join' queue.rs 's/take_while\(move \|\(other, \.\.\)\| other == program\)/take_while(move |_| !program.is_empty())/'
mutant 'joins cost too much' dispatch.rs 's/batch\.cost\.saturating_add\(part\.cost\) <= cost_max/batch.cost <= cost_max/'
mutant 'joins have too many inline bytes' dispatch.rs 's/inline_bytes \+ job\.request\.inline_bytes <=/inline_bytes <=/'
mutant 'parts join each other' job.rs 's/self\.parts\.len\(\) == 1\n\s+&& //'
mutant 'a job that may not run twice joins' job.rs 's/&& self\.request\.idempotent\n//'
mutant 'a job that shared a death joins again' job.rs 's/&& !self\.alone\n//'
mutant 'who joins is not charged' queue.rs 's/(find\(\|&\(_, place\)\| fits\(place\)\)\n\s+\}\)\?;\n\s+)self\.charge\(client, place\);/$1let clock = self.shares[\&client].clock;\n        self.take_out(client, place, clock);/'
mutant 'a job joins where it failed' dispatch.rs 's/\n\s+&& !avoids\(part, worker\.device\)//'
mutant 'nobody ever joins' queue.rs 's/self\.joining\(program, ClientId\(0\)\)\.next\(\)\?;/self.joining(program, ClientId(u64::MAX)).next()?;/'

# Deaths that several share
mutant 'a batch that had not begun is suspect' losses.rs 's/self\.preempt\(now, sent\.attempt, loss\);\n(\s+)\}\n(\s+)let alone/self.on_attempt_lost(now, sent.attempt, loss, false);\n$1}\n$2let alone/'
mutant 'each of several is convicted' losses.rs 's/let alone = front\.sent\.len\(\) == 1;/let alone = front.sent.len() >= 1;/'
mutant 'a death that several shared is forgotten' losses.rs 's/job\.alone = true;/job.alone = false;/'
mutant 'a preempted attempt counts' job.rs 's/part\.tries -= 1;//'
mutant 'those beside a job that is cut off lose an attempt' losses.rs 's/LossKind::Freed => self\.preempt\(now, sent\.attempt, loss\)/LossKind::Freed => self.on_attempt_lost(now, sent.attempt, loss, false)/'
mutant 'a late job gives those beside it no time' slot.rs 's/is_late && outstanding\.is_single\(\)/is_late/'
mutant 'a late job that is alone has a grace' slot.rs 's/is_late && outstanding\.is_single\(\)/is_late \&\& false/'
mutant 'what is preempted runs while its process may write' upkeep.rs 's/(let outstanding = slot\.take_outstanding\(\);)\n(\s+)(slot\.state = SlotState::Killed \{ give_up_at, )outstanding, cause \};/$1\n$2$3outstanding: None, cause };\n$2let device = slot.device_info();\n$2if let Some(outstanding) = outstanding { self.on_lost(now, outstanding, \&super::losses::Loss { device, kind: cause.loss(), detail: "x".to_owned(), why: "x".to_owned() }); }\n$2let slot = \&self.slots[index];/'

# What the status tells
mutant 'runs are counted by attempt' dispatch.rs 's/self\.counters\.runs \+= 1;/self.counters.runs += attempts.len() as u64;/'
mutant 'a single attempt counts as joined' dispatch.rs 's/if attempts\.len\(\) > 1 \{ attempts/if attempts.len() > 0 { attempts/'
mutant 'the most that waited is not kept' upkeep.rs 's/self\.jobs_high\.max\(self\.queue\.jobs\(\)\)/self.queue.jobs()/'
mutant 'the most bytes are not kept' clients.rs 's/self\.bytes_high\.max\(self\.inline_bytes\)/self.inline_bytes/'

# The end
mutant 'a drain forgets what runs' upkeep.rs 's/if self\.jobs\.is_empty\(\) \{/if self.queue.is_empty() {/'
mutant 'a drain has no timeout' upkeep.rs 's/\} else if now >= until \{/} else if now >= until \&\& self.jobs.len() > 1_000 {/'
mutant 'a drain waits for lost devices' upkeep.rs 's/(self\.give_up_if_no_device\(now\);)\n(\s+)(self\.end_drain\(now\);)/$3\n$2$1/'
mutant 'the order to stop now is ignored by a pool that stops' upkeep.rs 's/if self\.phase == Phase::Left \{/if matches!(self.phase, Phase::Left | Phase::Leaving) {/'
mutant 'the pool leaves before its workers' upkeep.rs 's/!slot\.has_process\(\) \|\| matches!\(/!slot.has_process() || matches!(slot.state, SlotState::Stopping { .. }) || matches!(/'
mutant 'the pool waits for a worker that cannot be killed' upkeep.rs 's/(!slot\.has_process\(\)) \|\| matches!\(slot\.state, SlotState::Unkillable \{ \.\. \}\)/$1/'
mutant 'a death while the pool leaves counts' workers.rs 's/if leaving \|\| stopping \{/if false \&\& (leaving || stopping) {/'
mutant 'a start that fails while the pool leaves counts' workers.rs 's/if matches!\(self\.phase, Phase::Leaving \| Phase::Left\) \{/if false {/'
mutant 'workers start while the pool leaves' upkeep.rs 's/SlotState::Waiting \{ \.\. \} => slot\.state = SlotState::Stopped,/SlotState::Waiting { .. } => {}/; s/if !matches!\(self\.phase, Phase::Serving \| Phase::Draining \{ \.\. \}\) \{/if false {/'

printf '\n%d caught, %d missed, %d could not be tried\n' "$caught" "$missed" "$broken"
[[ $missed == 0 && $broken == 0 ]]
