#!/usr/bin/env bash
# Plants one bug at a time in a copy of the pool's core and runs the simulator against it. A simulator
# that stays green proves little until every one of these makes it red. MUTANTS.md has the table.
#
#   tests/sim/mutants.sh [seeds] [name-part]
#
# With 0 seeds it only says which bugs can no longer be planted because the text they change is gone.
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
    if [[ $seeds == 0 ]]; then
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
[[ $seeds == 0 ]] || simulate >/dev/null || { echo "the simulator fails without any bug planted" >&2; exit 1; }
printf '| bug | caught by | rule |\n|---|---|---|\n'

# Generations and messages
mutant 'no generation fence' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process/slot.device == worker.device && slot.has_process/'
mutant 'a dead process is still heard' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process\(\)/slot.worker() == worker/'
mutant 'an answer for another attempt of the job counts' outstanding.rs 's/position\(\|sent\| sent\.attempt == attempt\)/position(|sent| sent.attempt.job == attempt.job)/'
mutant 'the answer of a worker being killed is dropped' slot.rs 's/let outstanding = all\.as_mut\(\)/if jobless(\&self.device) { return Answered::Unknown; }\n                let outstanding = all.as_mut()/; s/\z/fn jobless(_: \&DeviceId) -> bool { true }\n/'
mutant 'stale messages are not counted' workers.rs 's/None => self\.counters\.stale \+= 1/None => {}/'

# Jobs
mutant 'poison one death late' convicts.rs 's/job\.deaths >= self/job.deaths > self/'
mutant 'poison one death early' convicts.rs 's/job\.deaths >= self/job.deaths + 1 >= self/'
mutant 'a hang is no evidence' losses.rs 's/policy\.response\(FaultCode::Hang\) == Response::Suspect/policy.response(FaultCode::Hang) == Response::Retry/'
mutant 'a bare SIGKILL is evidence' losses.rs 's/Self::Freed \| Self::Killed \| Self::Unbegun => false/Self::Freed | Self::Unbegun => false,\n            Self::Killed => true/'
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
mutant 'a drain accepts jobs' clients.rs 's/Phase::Serving => \{\}\n(\s+)Phase::Draining \{ \.\. \} \| /Phase::Serving | Phase::Draining { .. } => {}\n$1/'
mutant 'a replayed key runs again' clients.rs 's/self\.verdicts\.find\(key\) \{/self.verdicts.find(key).filter(|_| false) {/'
mutant 'a key of another client is accepted' clients.rs 's/live\.client == client\n\s*&& //'
mutant 'one verdict too many is kept' verdicts.rs 's/self\.order\.len\(\) > self\.kept/self.order.len() > self.kept + 1/'
mutant 'the verdict of a vanished client is remembered' mod.rs 's/if client\.is_some\(\) \{\n(\s+)self\.verdicts/if true {\n$1self.verdicts/'
mutant 'queued jobs outlive their client' clients.rs 's/self\.unqueue\(id\);//'
mutant 'the job of a vanished client runs again' losses.rs 's/if job\.orphaned \{/if false {/g'

# Devices and their deaths
mutant 'quarantine one death late' device.rs 's/idle_deaths >= config/idle_deaths > config/'
mutant 'quarantine one death early' device.rs 's/idle_deaths >= config/idle_deaths + 1 >= config/'
mutant 'quarantine one failed start late' device.rs 's/start_failures >= config/start_failures > config/'
mutant 'failed starts are not forgiven' device.rs 's/(self\.never_ready = false;\n\s+)self\.start_failures = 0;/$1/'
mutant 'old deaths count for ever' device.rs 's/now\.since\(at\) > config\.restart_window/false/'
mutant 'a bare SIGKILL counts against the device' workers.rs 's/(if response == Response::Retry =>) Blame::Outside/$1 Blame::Device/'
mutant 'freeing a device counts against it' workers.rs 's/=> Blame::Pool/=> Blame::Device/'
mutant 'exit code 73 is tried again' workers.rs 's/\[response, of_exit\]\.contains\(&Response::Halt\)/exit.code() != gridpool_protocol::fault::FaultCode::Exit(73) \&\& [response, of_exit].contains(\&Response::Halt)/'
mutant 'a program that is not there is started again' workers.rs 's/blame, response == Response::Halt, false/blame, false, false/'
mutant 'a start that failed for want of descriptors counts' workers.rs 's/false => Blame::Outside/false => Blame::Device/'
mutant 'a job of a worker killed from outside avoids its device' losses.rs 's/if loss\.kind == LossKind::Killed \{/if false {/'
mutant 'a pause is not excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap > PAUSE_MIN * 1_000 {/'
mutant 'a short pause is excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap * 2 >= PAUSE_MIN {/'
mutant 'a pause excuses silence alone' slot.rs 's/\*at = at\.after\(gap\)/_ = (at, gap)/'
mutant 'a pause excuses no grace' outstanding.rs 's/sent\.free_at = sent\.free_at\.map\(\|at\| at\.after\(gap\)\);//'
mutant 'the report names the wrong worker' rows.rs 's/live\.sort_by_key\(\|slot\| !slot\.serves\(\)\);/live.sort_by_key(|slot| slot.serves());/'
mutant 'a device that was READY once counts as misconfigured' device.rs 's/self\.never_ready = false;//'
mutant 'a receipt does not name the device' slot.rs 's/self\.info = Some\(info\);/_ = info;/'
mutant 'no backoff' slot.rs 's/(self\.backoff_steps \+= 1;\n\s+)wait\n/$1wait * 0\n/'
mutant 'the first restart waits' slot.rs 's/self\.backoff_steps\.checked_sub\(1\)/self.backoff_steps.checked_sub(0)/'
mutant 'the backoff has no cap' slot.rs 's/\.min\(config\.backoff_max\)//'
mutant 'READY resets the backoff' slot.rs 's/self\.was_ready = true;/self.was_ready = true;\n        self.backoff_steps = 0;/'
mutant 'work does not reset the backoff' slot.rs 's/self\.jobs_done \+= 1;\n\s*self\.backoff_steps = 0;/self.jobs_done += 1;/'
mutant 'a suspect gets a job' slot.rs 's/if now\.since\(self\.last_heard\) < config\.heartbeat_suspect =>/if now.since(self.last_heard) < config.heartbeat_kill =>/'
mutant 'silence is never noticed' slot.rs 's/SlotState::Ready \{ \.\. \} \| SlotState::Standby => Some\(silent\)/SlotState::Ready { .. } => None,\n            SlotState::Standby => Some(silent)/'
mutant 'a hung worker is given up at once' slot.rs 's/SlotState::Killed \{ give_up_at, \.\. \} => Some\(give_up_at\)/SlotState::Killed { .. } => Some(self.last_heard)/'
mutant 'a device is used beside its unkillable worker' losses.rs 's/slot\.state = SlotState::Unkillable \{ cause \};/slot.state = SlotState::Waiting { until: now };/'
mutant 'a device that is being freed counts as lost' seats.rs 's/\n\s+\| SlotState::Killed \{ \.\. \}(\n\s+\| SlotState::Ready \{ \.\. \}\n\s+\| SlotState::Reclaiming \{ \.\. \}\n\s+\| SlotState::Standby\n\s+\| SlotState::Starting \{ \.\. \}\n\s+\| SlotState::Stopping \{ \.\. \}\n\s+\| SlotState::Waiting \{ \.\. \} => true,\n\s+SlotState::Stopped)/$1 | SlotState::Killed { .. }/'
mutant 'the device of the last failure is not avoided' dispatch.rs 's/\(!unwanted\(index\) \|\| !is_near\(\)\)/(!unwanted(index) || !is_near() || true)/; s/\(unwanted\(index\), since, index\)/(since, index)/'

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
mutant 'the answer of a batch that waits counts' outstanding.rs 's/return Answered::Unknown;/let Some(second) = \&mut self.second else { return Answered::Unknown };\n            second.sent.retain(|sent| sent.attempt != attempt || second.cost == 0);\n            return Answered::Known { is_last: false, moved: false };/'
mutant 'what is cut off dies as soon as it is in front' outstanding.rs 's/sent\.free_at\.map\(\|at\| at\.max\(now\.after\(grace\)\)\)/sent.free_at.map(|at| if at < now.after(grace) { at } else { now })/'
mutant 'what was cut off before it began is never ended' outstanding.rs 's/sent\.free_at\.map\(\|at\| at\.max\(now\.after\(grace\)\)\)/sent.free_at.filter(|_| false).map(|_| now.after(grace))/'

# Those who wait behind another
mutant 'nobody is killed for those who wait' patience.rs 's/is_none_or\(\|at\| at > now\)/is_none_or(|at| at > now || true)/'
mutant 'the pool does not wake for those who wait' mod.rs 's/\.chain\(patience\)/.chain(patience.filter(|_| false))/'
mutant 'a worker is killed for those who wait though no device idles' patience.rs 's/idles\(other\) && may_take\(other\)/(idles(other) || true) \&\& may_take(other)/'
mutant 'a silent device counts as one that idles' patience.rs 's/\n\s+&& ends < other\.last_heard[^\n]*//'
mutant 'a worker is killed for those who failed on the device that idles' patience.rs 's/idles\(other\) && may_take\(other\)/idles(other) \&\& (may_take(other) || true)/'
mutant 'whoever was waited for is waited for again' outstanding.rs 's/may_run_again && !on_trial/may_run_again/'
mutant 'whoever was waited for joins again' patience.rs 's/job\.suspects = Some\([^;]+;//'
mutant 'somebody waits behind a job that may not run twice' outstanding.rs 's/may_run_again && !on_trial/(may_run_again || true) \&\& !on_trial/'
mutant 'whoever was waited for is suspect' patience.rs 's/now, index, KillCause::FreeDevice/now, index, KillCause::Hang/'
mutant 'a pause counts as patience' outstanding.rs 's/batch\.since = batch\.since\.after\(gap\);//'

# Joins
mutant 'other programs join' queue.rs 's/take_while\(move \|\(other, \.\.\)\| other == with\)/take_while(move |(other, ..)| other.suspects == with.suspects)/'
mutant 'joins cost too much' dispatch.rs 's/batch\.cost\.saturating_add\(part\.cost\) <= cost_max/batch.cost <= cost_max/'
mutant 'joins have too many inline bytes' dispatch.rs 's/inline_bytes \+ job\.request\.inline_bytes <=/inline_bytes <=/'
mutant 'parts join each other' job.rs 's/self\.parts\.len\(\) == 1\n\s+&& //'
mutant 'a job that may not run twice joins' job.rs 's/&& self\.request\.idempotent\n//'
mutant 'a job that shared a death joins again' job.rs 's/suspects: self\.suspects \}\)/suspects: None })/'
mutant 'who joins is not charged' queue.rs 's/(find\(\|&\(_, place\)\| fits\(place\)\)\n\s+\}\)\?;\n\s+)self\.charge\(client, place\);/$1let clock = self.shares[\&client].clock;\n        self.take_out(client, place, clock);/'
mutant 'a job joins where it failed' dispatch.rs 's/\n\s+&& \(!avoids\(part, worker\.device\) \|\| with\.suspects\.is_some\(\)\)//'
mutant 'nobody ever joins' queue.rs 's/self\.joining\(with, ClientId\(0\)\)\.next\(\)\?;/self.joining(with, ClientId(u64::MAX)).next()?;/'

# Deaths that several share
mutant 'a batch that had not begun is suspect' losses.rs 's/self\.preempt\(now, sent\.attempt, loss\);\n(\s+)\}\n(\s+)let alone/self.on_attempt_lost(now, sent.attempt, loss, false);\n$1}\n$2let alone/'
mutant 'each of several is convicted' losses.rs 's/let alone = front\.sent\.len\(\) == 1;/let alone = front.sent.len() >= 1;/'
mutant 'a death that several shared is forgotten' losses.rs 's/self\.jobs\.get_mut\(id\)\.expect\("it runs"\)\.suspects = suspects;/_ = (id, suspects);/'
mutant 'a preempted attempt counts' job.rs 's/part\.tries -= 1;//'
mutant 'those beside a job that is cut off lose an attempt' losses.rs 's/LossKind::Unbegun => self\.preempt\(now, attempt, loss\)/LossKind::Unbegun => self.on_attempt_lost(now, attempt, loss, true)/'
mutant 'a late job gives those beside it no time' slot.rs 's/is_late && outstanding\.is_single\(\)/is_late/'
mutant 'a late job that is alone has a grace' slot.rs 's/is_late && outstanding\.is_single\(\)/is_late \&\& false/'
mutant 'what is preempted runs while its process may write' job.rs 's/!self\.has_a_place\(\) && self\.request\.idempotent/self.request.idempotent/'

# Seats
mutant 'a standby gets jobs' seats.rs 's/if !is_served \{/if true || !is_served {/'
mutant 'the newest standby takes over' seats.rs 's/min_by_key\(\|slot\| slot\.generation\)/max_by_key(|slot| slot.generation)/'
mutant 'nobody takes over' seats.rs 's/if let Some\(slot\) = oldest \{/if let Some(slot) = oldest.filter(|_| false) {/'
mutant 'a standby takes over only when the old process is gone' upkeep.rs 's/self\.promote\(now, worker\.device\);//'
mutant 'nobody takes over from one that ends by itself' workers.rs 's/self\.promote\(now, worker\.device\);//'
mutant 'a silent standby is left alone' slot.rs 's/SlotState::Ready \{ \.\. \} \| SlotState::Standby => Some\(silent\)/SlotState::Ready { .. } => Some(silent),\n            SlotState::Standby => None/'
mutant 'a standby is left behind by a drain' upkeep.rs 's/\n\s+\| SlotState::Standby(\n\s+\| SlotState::Starting \{ \.\. \} => \{\n\s+slot\.state = SlotState::Stopping \{ kill_at \};.*?\n\s+SlotState::Killed \{ \.\. \})/$1 | SlotState::Standby/s'
mutant 'two processes start cold' seats.rs 's/\n\s+\| SlotState::Starting \{ \.\. \}(\n\s+\| SlotState::Stopping \{ \.\. \}\n\s+\| SlotState::Unkillable \{ \.\. \} => true,\n\s+SlotState::Stopped)( \| SlotState::Waiting \{ \.\. \} => false)/$1 | SlotState::Starting { .. }$2/'
mutant 'a process starts cold beside one that is being killed' seats.rs 's/\n\s+\| SlotState::Killed \{ \.\. \}(\n\s+\| SlotState::Ready \{ \.\. \}\n\s+\| SlotState::Reclaiming \{ \.\. \}\n\s+\| SlotState::Standby\n\s+\| SlotState::Starting \{ \.\. \}\n\s+\| SlotState::Stopping \{ \.\. \}\n\s+\| SlotState::Unkillable \{ \.\. \} => true,\n\s+SlotState::Stopped)/$1 | SlotState::Killed { .. }/'
mutant 'a process starts cold before the memory of its sibling is back' seats.rs 's/\n\s+\| SlotState::Reclaiming \{ \.\. \}(\n\s+\| SlotState::Standby\n\s+\| SlotState::Starting \{ \.\. \}\n\s+\| SlotState::Stopping \{ \.\. \}\n\s+\| SlotState::Unkillable \{ \.\. \} => true,\n\s+SlotState::Stopped)/$1 | SlotState::Reclaiming { .. }/'
mutant 'memory is not waited for' workers.rs 's/self\.seat_died\(now, index, blame, is_final, true\)/self.seat_died(now, index, blame, is_final, false)/'
mutant 'a process that never started leaves memory behind' workers.rs 's/response == Response::Halt, false\)/response == Response::Halt, true)/'
mutant 'standbys wait for the old process' seats.rs 's/\(self\.is_served\(slot\.device\) \|\| !seats\(\)\.any\(holds_device\)\)/(!seats().any(|seat| holds_device(seat) \&\& !seat.serves()))/'
mutant 'there are no standbys' seats.rs 's/self\.is_served\(slot\.device\) \|\| !seats/!seats/'
mutant 'a device serves on beside a process that cannot be killed' losses.rs 's/self\.put_out\(now, worker\.device, false, KillCause::FreeDevice\)/_ = self.phase/'
mutant 'seats number their processes apart' seats.rs 's/let generation = device\.next_generation\(\);/_ = device.next_generation();\n        let generation = self.slots[index].generation + 1;/'
mutant 'what starts beside one that serves is waited for' seats.rs 's/SlotState::Starting \{ \.\. \} => !is_served\(slots, slot\.device\)/SlotState::Starting { .. } => true/'
mutant 'the first process of a seat is a restart' seats.rs 's/slot\.starts > 1/generation > 1/'
mutant 'the memory of any process of the device counts' seats.rs 's/find\(\|slot\| slot\.worker\(\) == worker\)/find(|slot| slot.device == worker.device)/'
mutant 'memory is waited for whatever the time' slot.rs 's/SlotState::Reclaiming \{ until, \.\. \} => Some\(until\)/SlotState::Reclaiming { .. } => None/'
mutant 'a pause does not excuse memory' slot.rs 's/\n\s+\| SlotState::Reclaiming \{ until: at, \.\. \}//; s/(SlotState::Busy \{ outstanding \} => outstanding\.excuse\(gap\),\n\s+SlotState::Ready \{ \.\. \})/$1 | SlotState::Reclaiming { .. }/'

# What deaths mean
mutant 'the death of a standby counts' seats.rs 's/let counts = served \|\| \(at_start && !is_served\);/let counts = served || at_start || true;/'
mutant 'a failed start beside one that serves counts' seats.rs 's/served \|\| \(at_start && !is_served\)/served || at_start/'
mutant 'a device goes out of service under its standby' seats.rs 's/device\.note\(now, death, &self\.config\) && !is_served/device.note(now, death, \&self.config)/'
mutant 'a device is judged before its standby takes over' workers.rs 's/(self\.promote\(now, worker\.device\);)\n(\s+)(let is_final = [^;]+;)\n\s+(self\.seat_died\([^;]+;)/$3\n$2$4\n$2$1/'
mutant 'a standby that can never start is started at once' seats.rs 's/if is_final && !counts \{ self\.config\.backoff_max \}/if is_final \&\& !counts \&\& false { self.config.backoff_max }/'
mutant 'a death that bisection asked for counts' workers.rs 's/if on_trial \{/if on_trial \&\& false {/'
mutant 'a job that killed alone is not on trial' job.rs 's/self\.suspects\.is_some\(\) \|\| self\.deaths > 0/self.suspects.is_some()/'
mutant 'a job that shared a loss is not on trial' job.rs 's/self\.suspects\.is_some\(\) \|\| self\.deaths > 0/self.deaths > 0/'
mutant 'a process whose beacon was lost died of the pool' workers.rs 's/\n\s+SlotState::Killed \{ cause: KillCause::Beacon, \.\. \}\n\s+\| SlotState::Unkillable \{ cause: KillCause::Beacon \} => None,//'

# Quarantine
mutant 'a device is never tried again' device.rs 's/\(!is_final\)\.then\(\|\| now\.after\(wait\)\)/(!is_final).then(|| now.after(wait)).filter(|_| false)/'
mutant 'a halted device is tried again' device.rs 's/\(!is_final\)\.then\(/(!is_final || true).then(/'
mutant 'every try waits as long as the first' device.rs 's/saturating_pow\(self\.probes\)/saturating_pow(self.probes.min(0))/'
mutant 'tries wait ever longer' device.rs 's/saturating_mul\(factor\)\.min\(config\.probe_max\)/saturating_mul(factor)/'
mutant 'work does not end the probation' device.rs 's/(self\.idle_deaths\.clear\(\);\n\s+)self\.probes = 0;/$1/'
mutant 'READY ends the probation' device.rs 's/self\.never_ready = false;/self.never_ready = false;\n        self.probes = 0;/'
mutant 'there is no probation' device.rs 's/\n\s+\|\| \(self\.probes > 0 && death\.idle\)//'
mutant 'a try that fails leaves the device as it is' seats.rs 's/Service::Probing => \{\n\s+return match/Service::Probing => {\n                if now.0.as_nanos() > 0 {\n                    return;\n                }\n                return match/'
mutant 'a try starts beside an old process' seats.rs 's/first == Some\(index\) && !seats\(\)\.any\(holds_device\)/first == Some(index)/'
mutant 'a device that is being tried may serve' device.rs 's/self\.service == Service::Open\n/!matches!(self.service, Service::Quarantined { .. })\n/'
mutant 'READY does not bring the device back' device.rs 's/\n\s+self\.service = Service::Open;//'
mutant 'what starts on a device goes on when that is out of service' seats.rs 's/self\.clear\(now, id\);//'
mutant 'nothing is released' device.rs 's/\*probe_at = Some\(now\);/_ = (probe_at, now);/'
mutant 'a release waits like any try' device.rs 's/\*probe_at = Some\(now\);/*probe_at = probe_at.or(Some(now));/'
mutant 'an old process quarantines the device again' seats.rs 's/Service::Quarantined \{ \.\. \} => return,/Service::Quarantined { .. } => {}/'
mutant 'deaths outlive the quarantine' device.rs 's/(self\.start_failures = 0;\n\s+)self\.idle_deaths\.clear\(\);/$1/'
mutant 'a device out of service may serve' seats.rs 's/device\.is_open\(\) && self\.seats/self.seats/'
mutant 'a device that is being tried has not failed' device.rs 's/!self\.is_open\(\) && self\.never_ready/matches!(self.service, Service::Quarantined { .. }) \&\& self.never_ready/'

# What the driver says
mutant 'a GPU that is lost is tried again' xid.rs 's/self\.put_out\(now, id, true, cause\)/self.put_out(now, id, false, cause)/'
mutant 'a fault ends the processes of a device and no more' xid.rs 's/device\.quarantine\(now, is_final, &config\),/_ = \&config,/'
mutant 'processes go on on a device that is put out' xid.rs 's/self\.end_workers\(now, id, cause\);(\n    \}\n\n    \/\/\/ Ends every)/_ = cause;$1/'
mutant 'a fault of a device that is out puts off the next try' xid.rs 's/Service::Quarantined \{ \.\. \} if !is_final => return,/Service::Quarantined { .. } if !is_final => device.quarantine(now, is_final, \&config),/'
mutant 'a device that is out is not halted' xid.rs 's/\*probe_at = None/_ = probe_at/'
mutant 'a fault that is told twice is two' xid.rs 's/ago <= config\.incident_window/ago <= config.incident_window * 0/'
mutant 'a fault that comes again is a first one' xid.rs 's/=> Incident::Repeated,/=> Incident::First,/'
mutant 'a pool that leaves puts devices out' xid.rs 's/!knows \|\| matches!\(self\.phase, Phase::Leaving \| Phase::Left\)/!knows/'
mutant 'a fault of the device is a hang' xid.rs 's/self\.kill\(now, index, cause\)/self.kill(now, index, KillCause::Hang)/'
mutant 'a fault of the device costs what it ran nothing' xid.rs 's/self\.kill\(now, index, cause\)/self.kill(now, index, KillCause::FreeDevice)/'
mutant 'what the driver says of a worker that is gone ends the next' xid.rs 's/Response::QuarantineOnRepeat \| Response::Restart if is_expected => \{\}/Response::Restart if is_expected => {}/'
mutant 'no job brings its device to a stop' losses.rs 's/evidence: fault\.may_be_a_jobs_doing\(\)/evidence: fault.may_be_a_jobs_doing() \&\& false/'
mutant 'broken memory speaks against the job' losses.rs 's/evidence: fault\.may_be_a_jobs_doing\(\)/evidence: fault.may_be_a_jobs_doing() || true/'
mutant 'a device that the driver puts out is a wrong set-up' device.rs 's/self\.never_ready && self\.refused/self.never_ready/'
mutant 'a standby outlives its device' xid.rs 's/\n\s+\| SlotState::Standby(\n\s+\| SlotState::Starting \{ \.\. \} => true,\n\s+SlotState::Killed \{ \.\. \})/$1 | SlotState::Standby/'
mutant 'what a worker says that it met is not heard' workers.rs 's/response_to_exit\(exit\.code\(\), exit\.fault\)/response_to_exit(exit.code(), exit.fault.filter(|_| false))/'
mutant 'a job that may not run twice runs on when its device is put out' losses.rs 's/(job\.preempted\(.*?false => )self\.retry_or_fail\(now, id, part, &loss\.why\)/$1match self.jobs[\&id].orphaned {\n                true => self.finish_if_ended(now, id),\n                false => self.enqueue(id, part),\n            }/s'

# Beacons, and what moves
mutant 'a lost beacon is ignored' workers.rs 's/self\.kill_because\(now, index, KillCause::Beacon, why\);/_ = (now, index, why);/'
mutant 'a lost beacon is a hang' workers.rs 's/self\.kill_because\(now, index, KillCause::Beacon, why\)/self.kill_because(now, index, KillCause::Hang, why)/'
mutant 'a lost beacon of one that starts is ignored' workers.rs 's/\n\s+\| SlotState::Starting \{ \.\. \} => \{(\n\s+let mut why = self\.why_killed\(KillCause::Beacon.*?\n\s+SlotState::Killed \{ \.\. \})/ => {$1 | SlotState::Starting { .. }/s'
mutant 'a lost beacon is no sign of life' workers.rs 's/let Some\(index\) = self\.current_slot\(now, worker\) else \{ return \};\n(\s+match self\.slots\[index\]\.state \{\n\s+SlotState::Busy \{ \.\. \}\n\s+\| SlotState::Ready \{ \.\. \}\n\s+\| SlotState::Standby)/let Some(index) = self.slots.iter().position(|slot| slot.worker() == worker \&\& slot.has_process()) else { return };\n$1/'
mutant 'nothing moves' upkeep.rs 's/&& cause != KillCause::Leaving/\&\& cause == KillCause::Leaving/'
mutant 'what may not run twice moves' job.rs 's/!self\.has_a_place\(\) && self\.request\.idempotent &&/!self.has_a_place() \&\&/'
mutant 'what nobody waits for moves' job.rs 's/self\.request\.idempotent && !self\.orphaned/self.request.idempotent/'
mutant 'what may be convicted moves' losses.rs 's/ && job\.deaths \+ pending \+ 1 < self\.config\.poison_deaths//'
mutant 'deaths to come are not reckoned with' losses.rs 's/job\.deaths \+ pending \+ 1 </job.deaths + pending * 0 + 1 </'
mutant 'the last attempt moves' losses.rs 's/tries < self\.config\.attempts_max && job/(tries < self.config.attempts_max || true) \&\& job/'
mutant 'a late answer of what has moved counts' workers.rs 's/if moved \{/if moved \&\& false {/'
mutant 'a late answer of what has moved is no work' workers.rs 's/self\.device_mut\(worker\.device\)\.worked\(\);\n(\s+)(if moved \{.*?\n\s{8}\})/$2\n$1self.device_mut(worker.device).worked();/s'
mutant 'what a moved job did is forgotten' losses.rs 's/let speaks = alone && /let speaks = false \&\& alone \&\& /'
mutant 'several that moved are each guilty' losses.rs 's/let speaks = alone && /let speaks = (alone || true) \&\& /'
mutant 'the first batch moves and the second waits' losses.rs 's/for sent in outstanding\.second\.iter_mut\(\)\.flat_map\(\|batch\| &mut batch\.sent\) \{/for sent in outstanding.second.iter_mut().flat_map(|batch| \&mut batch.sent).take(0) {/'
mutant 'a hang that moves is told as a death' losses.rs 's/Self::Hung \{ \.\. \} => AttemptOutcome::Hang/Self::Hung { .. } => AttemptOutcome::WorkerDied/'
mutant 'a loss that several shared is an attempt' losses.rs 's/job\.parts\[part\]\.tries -= u32::from\(shared\);/_ = shared;/'

# Bisection
mutant 'what moves is not halved' losses.rs 's/self\.split_suspects\(outstanding, loss\.kind\);//'
mutant 'every suspect is on its own' losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.chunks(1)/'
mutant 'suspects are not halved' losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.chunks(suspects.len().max(1))/'
mutant 'the second half is the larger' losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.rchunks(suspects.len().div_ceil(2).max(1))/'
mutant 'a bare SIGKILL halves nobody' losses.rs 's/if kind\.costs_nothing\(\) \|\| /if kind.costs_nothing() || kind == LossKind::Killed || /'
mutant 'freeing a device halves' losses.rs 's/if kind\.costs_nothing\(\) \|\| outstanding/if outstanding/'
mutant 'a batch that came to the front late is not halved' outstanding.rs 's/\n\s+self\.is_split = false;//'
mutant 'an answer upsets the order' outstanding.rs 's/self\.front\.sent\.remove\(at\)/self.front.sent.swap_remove(at)/'
mutant 'those who were waited for join each other' patience.rs 's/self\.suspects \+= 1;\n/self.suspects += u32::from(sent == \&outstanding.front.sent[0]);\n/'

# Convicts
mutant 'nobody asks what a suspect is' convicts.rs 's/self\.actions\.push_back\(Action::HashContent \{ job: id \}\);//'
mutant 'every death asks what the suspect is' convicts.rs 's/if job\.content == Content::Unknown \{/if job.content == Content::Unknown || job.deaths > 1 {/'
mutant 'a verdict of POISON does not wait' convicts.rs 's/let Content::Said\(content\) = job\.content else \{ return \};/let content = match job.content { Content::Said(content) => content, Content::Asked | Content::Unknown => None };/'
mutant 'what cannot be read is not convicted' convicts.rs 's/let Content::Said\(content\) = job\.content else/let Content::Said(content @ Some(_)) = job.content else/'
mutant 'a convict is not remembered' convicts.rs 's/self\.convicts\.remember\(content, &job\.request\);//'
mutant 'one convict too many is kept' convicts.rs 's/self\.order\.len\(\) > self\.kept/self.order.len() > self.kept + 1/'
mutant 'the newest convict is forgotten' convicts.rs 's/let oldest = self\.order\.pop_front\(\)/let oldest = self.order.pop_back()/'
mutant 'a convict that comes again is counted again' convicts.rs 's/self\.contents\.insert\(content, looks\)\.is_none\(\)/self.contents.insert(content, looks).is_none() || true/'
mutant 'a released content is refused' mod.rs 's/=> self\.convicts\.forget\(content\)/=> _ = content/'
mutant 'one release frees all contents' mod.rs 's/=> self\.convicts\.forget\(content\)/=> { _ = content; self.convicts.forget_all(); }/'
mutant 'the release of all frees none' mod.rs 's/=> self\.convicts\.forget_all\(\)/=> {}/'
mutant 'a convicted content is accepted' clients.rs 's/filter\(\|&content\| self\.convicts\.has\(content\)\)/filter(|\&content| self.convicts.has(content) \&\& false)/'
mutant 'a refusal of a content is not counted' clients.rs 's/self\.counters\.refused_poison \+= 1;//'
mutant 'a full pool says nothing of a content' clients.rs 's/(if let Some\(content\) = request\.content.*?\n        \})\n(        if let Some\(refusal\) = self\.full\(client, &request\) \{.*?\n        \})/$2\n$1/s'
mutant 'a batch of another size looks alike' convicts.rs 's/ && looks\.items == items/ \&\& (looks.items == items || true)/'
mutant 'a convicted job runs on' convicts.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//'
mutant 'a convicted job waits on' convicts.rs 's/self\.unqueue\(id\);//'
mutant 'a job of a vanished client is not convicted' losses.rs 's/if alone && loss\.kind\.is_evidence\(\) && self\.note_death\(id\) \{/if alone \&\& loss.kind.is_evidence() \&\& self.note_death(id) \&\& !self.jobs[\&id].orphaned {/'

# What cannot be killed
mutant 'what an unkillable process may write to runs again' losses.rs 's/may_write: true \}/may_write: false }/'
mutant 'an answer is lost with an unkillable process' losses.rs 's/loss\.may_write && job\.has_a_place\(\)/loss.may_write/g'
mutant 'an unkillable process whose beacon was lost speaks against its job' losses.rs 's/KillCause::Beacon => Self::Died \{ evidence: false \}/KillCause::Beacon => Self::Died { evidence: true }/'
mutant 'parts run on beside one that is lost' losses.rs 's/(fn give_up_job\([^\n]+\n\s+)self\.end_early\(now, id, AttemptOutcome::Preempted\);/$1/'
mutant 'parts run on an old process though no device is left' upkeep.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//'
mutant 'who takes over from one that was waited for gets nothing' upkeep.rs 's/while self\.free_those_who_wait\(now\) \{\n\s+self\.dispatch\(now\);\n\s+\}/_ = self.free_those_who_wait(now);/'

# What the status tells
mutant 'runs are counted by attempt' dispatch.rs 's/self\.counters\.runs \+= 1;/self.counters.runs += attempts.len() as u64;/'
mutant 'a single attempt counts as joined' dispatch.rs 's/if attempts\.len\(\) > 1 \{ attempts/if attempts.len() > 0 { attempts/'
mutant 'the most that waited is not kept' upkeep.rs 's/self\.jobs_high\.max\(self\.queue\.jobs\(\)\)/self.queue.jobs()/'
mutant 'the most bytes are not kept' clients.rs 's/self\.bytes_high\.max\(self\.inline_bytes\)/self.inline_bytes/'
mutant 'a standby is shown as ready' rows.rs 's/SlotState::Standby => WorkerState::Standby/SlotState::Standby => WorkerState::Ready/'
mutant 'a device without a process is shown under an old number' rows.rs 's/\(device\.latest\(\), /(slot.worker(), /g'
mutant 'a device that is being tried is shown as quarantined' rows.rs 's/\(true, _\) => \(slot\.worker\(\), slot\.shown_state\(\)\)/(true, Service::Probing) => (slot.worker(), WorkerState::Quarantined),\n            (true, _) => (slot.worker(), slot.shown_state())/'
mutant 'the first process of a seat is shown as a restart' rows.rs 's/restarts: slot\.starts\.saturating_sub\(1\)/restarts: slot.starts/'
mutant 'a start is timed from the beginning of the pool' slot.rs 's/self\.started = now;//'
mutant 'the end of one that was killed is not timed' upkeep.rs 's/self\.slots\[index\]\.doomed = Some\(now\);//'

# The end
mutant 'a drain forgets what runs' upkeep.rs 's/if self\.jobs\.is_empty\(\) \{/if self.queue.is_empty() {/'
mutant 'a drain has no timeout' upkeep.rs 's/\} else if now >= until \{/} else if now >= until \&\& self.jobs.len() > 1_000 {/'
mutant 'a drain waits for lost devices' upkeep.rs 's/(self\.give_up_if_no_device\(now\);)\n(\s+)(self\.give_up_if_nobody_offers\(now\);)\n\s+(self\.end_drain\(now\);)/$4\n$2$1\n$2$3/'
mutant 'the order to stop now is ignored by a pool that stops' upkeep.rs 's/if self\.phase == Phase::Left \{/if matches!(self.phase, Phase::Left | Phase::Leaving) {/'
mutant 'the pool leaves before its workers' upkeep.rs 's/!slot\.has_process\(\) \|\| matches!\(/!slot.has_process() || matches!(slot.state, SlotState::Stopping { .. }) || matches!(/'
mutant 'the pool waits for a worker that cannot be killed' upkeep.rs 's/(!slot\.has_process\(\)) \|\| matches!\(slot\.state, SlotState::Unkillable \{ \.\. \}\)/$1/'
mutant 'a death while the pool leaves counts' workers.rs 's/if !leaving && !stopping \{/if true || (!leaving \&\& !stopping) {/'
mutant 'a start that fails while the pool leaves counts' workers.rs 's/if matches!\(self\.phase, Phase::Leaving \| Phase::Left\) \{/if false {/'
mutant 'seats stay open while the pool leaves' slot.rs 's/(fn close\(&mut self\) \{\n.*?)self\.state = SlotState::Stopped;/$1/s'
mutant 'a worker takes one more beside what it has than it may' slot.rs 's/front\.sent\.len\(\) < window\b/front.sent.len() <= window/'
mutant 'others run beside one that is on trial' slot.rs 's/&& front\.may_lead\n(\s+&& front\.sent\.len)/$1/'
mutant 'somebody runs beside others though a device idles' dispatch.rs 's/true => match self\.take_for_idle\(now\) \{/true => match self.take_beside(now).or_else(|| self.take_for_idle(now)) {/; s/if slots\.iter\(\)\.any\(idles\) \{/if false {/'
mutant 'a suspect runs beside others' dispatch.rs 's/job\.is_on_trial\(\) \|\| //'
mutant 'whoever runs beside others does not fill the worker' dispatch.rs 's/self\.window - in_hand/1/'
mutant 'who runs beside others goes anywhere' dispatch.rs 's/\(unwanted, front\.sent\.len\(\), index\)/(unwanted, 0, index)/'
mutant 'one must wait for a worker that has room' dispatch.rs 's/false if self\.window > 1 => \(self\.take_beside\(now\), join_cost_max\)/false if self.window > 1 => (None, join_cost_max)/'
mutant 'others run beside one that may not be lost' dispatch.rs 's/self\.window == 1 \|\| joins\.is_some\(\)/true/'
mutant 'a late job costs the worker of many others' losses.rs 's/ && self\.window == 1;/;/'
mutant 'two pools give one number' device.rs 's/self\.next \+= self\.step/self.next += 1/'

# Models
mutant 'an idle worker gets what it has no model for' dispatch.rs 's/idle\.filter\(\|&\(_, index\)\| slots\[index\]\.has_for\(job\)\)/idle.filter(|_| true)/'
mutant 'a worker with room gets what it has no model for' dispatch.rs 's/filter\(\|&&index\| slots\[index\]\.has_for\(job\)\)/filter(|_| true)/'
mutant 'whoever joins has another model' dispatch.rs 's/\n\s+&& slot\.has_for\(job\)(\n\s+&& batch\.cost)/$1/'
mutant 'nobody runs beside others while somebody idles without his model' dispatch.rs 's/(slot\.idle_since\(now, config\)\.is_some\(\)) && slot\.has_for\(job\)/$1/'
mutant 'whoever idles without a model keeps all others waiting' dispatch.rs 's/None if self\.window > 1 =>/None if self.window > 64 =>/'
mutant 'whoever waits for room holds up every model' dispatch.rs 's/open\.retain\([^;]+;/open.clear();/'
mutant 'whoever must run alone is overtaken for ever' dispatch.rs 's/open\.retain\([^;]+;//'
mutant 'whoever must run alone is overtaken on the worker with most room' dispatch.rs 's/!self\.slots\[index\]\.has_for\(&self\.jobs\[&place\.job\]\)/self.slots.get(index + 1).is_none() || !self.slots[index].has_for(\&self.jobs[\&place.job])/'
mutant 'a process that starts is not waited for' offers.rs 's/!self\.was_ready \|\| self\.has_for\(job\)/self.was_ready \&\& self.has_for(job)/'
mutant 'a retry waits for a device without its model' offers.rs 's/!self\.was_ready \|\| self\.has_for\(job\)/!self.was_ready || self.has_for(job) || true/'
mutant 'a worker that has no model has all' offers.rs 's/self\.offers\.contains\(model\)/(self.offers.is_empty() || self.offers.contains(model))/'
mutant 'a worker has what it once had' offers.rs 's/self\.slots\[index\]\.offers = models;/self.slots[index].offers.extend(models);/'
mutant 'models outlive their process' slot.rs 's/self\.offers\.clear\(\);//'
mutant 'an old process says what the new one has' offers.rs 's/self\.current_slot\(now, worker\)/self.slots.iter().position(|slot| slot.device == worker.device \&\& slot.has_process())/'
mutant 'whoever tells of its models is not heard' offers.rs 's/self\.current_slot\(now, worker\)/self.slots.iter().position(|slot| slot.worker() == worker \&\& slot.has_process() \&\& now >= slot.last_heard)/'
mutant 'whoever waits in vain waits on' offers.rs 's/if self\.slots\.iter\(\)\.any\(\|slot\| has\(&self\.prospect\(slot\)\)\) \{/if self.slots.iter().any(|slot| has(\&self.prospect(slot))) || true {/'
mutant 'what comes back is not looked at again' offers.rs 's/true => newcomers,/true => newcomers.into_iter().filter(|id| self.jobs.get(id).is_some_and(|job| job.parts[0].avoid.is_none())).collect::<Vec<_>>(),/'
mutant 'whoever comes is not looked at' offers.rs 's/true => newcomers,/true => Vec::new(),/'
mutant 'whoever waits is not looked at again' offers.rs 's/false => self\.queue\.all_jobs\(\)\.into_iter\(\)\.collect\(\)/false => newcomers/'
mutant 'what runs is given up with its model' offers.rs 's/\.filter\(\|job\| job\.waits\(\)\)//; s/false => self\.queue\.all_jobs\(\)\.into_iter\(\)\.collect\(\)/false => self.jobs.keys().copied().collect()/'
mutant 'one that starts gives no hope' offers.rs 's/\n\s+\| SlotState::Starting \{ \.\. \}(\n\s+\| SlotState::Stopping \{ \.\. \}\n\s+\| SlotState::Waiting \{ \.\. \} => Prospect::Unknown,\n\s+SlotState::Stopped)/$1 | SlotState::Starting { .. }/'
mutant 'one that was killed gives no hope' offers.rs 's/SlotState::Killed \{ \.\. \}\n\s+\| (SlotState::Reclaiming \{ \.\. \}\n.*?=> Prospect::Unknown,\n\s+SlotState::Stopped)/$1 | SlotState::Killed { .. }/s'
mutant 'memory that is not back gives no hope' offers.rs 's/\n\s+\| SlotState::Reclaiming \{ \.\. \}(\n.*?=> Prospect::Unknown,\n\s+SlotState::Stopped)/$1 | SlotState::Reclaiming { .. }/s'
mutant 'one that is to start gives no hope' offers.rs 's/\n\s+\| SlotState::Waiting \{ \.\. \} => Prospect::Unknown,\n(\s+SlotState::Stopped)/ => Prospect::Unknown,\n$1 | SlotState::Waiting { .. }/'
mutant 'a device out of service gives hope' offers.rs 's/ \|\| !self\.device\(slot\.device\)\.is_open\(\)//'
mutant 'those who serve give no hope' offers.rs 's/Prospect::Models\(slot\.worker\(\), slot\.offers\.clone\(\)\)/Prospect::Models(slot.worker(), BTreeSet::new())/'
mutant 'only pools whose workers run one at a time give up' offers.rs 's/if self\.window == 1 \{/if self.window > 1 {/'

# Jobs that a worker died of alone
mutant 'a job that killed alone takes others along' job.rs 's/window > 1 && self\.deaths > 0/window > 1 \&\& self.deaths > 100/'
mutant 'a job that killed alone since it waits is joined to others' dispatch.rs 's/!job\.runs_alone\(self\.window\)\n\s+&& //'
mutant 'a job that killed alone joins nobody in any pool' job.rs 's/window > 1 && self\.deaths > 0/window > 0 \&\& self.deaths > 0/'

# What nobody wants any more
mutant 'what its client left running is withdrawn twice' losses.rs 's/self\.window > 1 && !job\.orphaned;/self.window > 1;/'
mutant 'what was cut off is not withdrawn' losses.rs 's/if withdraws \{/if withdraws \&\& false {/'
mutant 'what its client left running is not withdrawn' clients.rs 's/if self\.window > 1 \{/if self.window > 64 {/'
mutant 'workers that run one at a time are told what nobody wants' clients.rs 's/if self\.window > 1 \{/if self.window > 0 {/'

# A pool that has nothing to do
mutant 'a pool that rests starts workers' seats.rs 's/if self\.has_nothing_to_do\(\) \{/if false {/'
mutant 'a pool that rests keeps its workers' offers.rs 's/self\.stop_workers\(now\);//'
mutant 'a pool that is to rest ends what it has' offers.rs 's/if self\.phase != Phase::Resting \|\| !self\.jobs\.is_empty\(\) \{/if self.phase != Phase::Resting {/'
mutant 'a pool that is to rest starts nobody for what it has' offers.rs 's/Phase::Resting => self\.jobs\.is_empty\(\)/Phase::Resting => true/'
mutant 'a pool that rests has something to do' offers.rs 's/Phase::Resting => self\.jobs\.is_empty\(\)/Phase::Resting => false/'
mutant 'a pool that is leaving awaits workers' offers.rs 's/Phase::Leaving \| Phase::Left => true/Phase::Leaving | Phase::Left => false/'
mutant 'a pool that rests accepts jobs' clients.rs 's/Phase::Serving => \{\}/Phase::Serving | Phase::Resting if self.phase != Phase::Left => {}\n            Phase::Serving => {}/'
mutant 'a pool that rests says that it drains' clients.rs 's/Some\(Refusal::Invalid\(RESTS\.to_owned\(\)\)\)/Some(Refusal::Draining)/'
mutant 'a pool that rests never wakes' offers.rs 's/self\.phase = Phase::Serving;/_ = self.phase;/'
mutant 'a pool that drains wakes' offers.rs 's/if self\.phase == Phase::Resting \{/if self.phase != Phase::Left {/'
mutant 'a pool that drains rests' mod.rs 's/if self\.phase == Phase::Serving \{(\n\s+self\.phase = Phase::Resting;)/if self.phase != Phase::Left {$1/'
mutant 'a pool that rests does not drain' mod.rs 's/matches!\(self\.phase, Phase::Serving \| Phase::Resting\)/self.phase == Phase::Serving/'
mutant 'a pool that rests says that it has stopped accepting for good' mod.rs 's/Phase::Draining \{ \.\. \} \| Phase::Leaving \| Phase::Left => true,\n(\s+)Phase::Resting \| Phase::Serving => false/Phase::Draining { .. } | Phase::Leaving | Phase::Left | Phase::Resting => true,\n$1Phase::Serving => false/'
mutant 'the seat of one that ended as asked is lost' workers.rs 's/if stopping && !leaving \{/if stopping \&\& !leaving \&\& false {/'
mutant 'the seat of one that ended as asked while the pool rests is lost' workers.rs 's/if stopping && !leaving \{/if stopping \&\& self.phase == Phase::Serving {/'
mutant 'the memory of one that ended as asked is not waited for' seats.rs 's/SlotState::Reclaiming \{ until, restart_at: now \}/{ _ = until; SlotState::Waiting { until: now } }/'
mutant 'one that ended as asked has died' workers.rs 's/if !leaving && !stopping \{/if !leaving {/'
mutant 'one that had to be killed for a rest has died' workers.rs 's/ \|\| cause == Some\(KillCause::Leaving\);/;/'
mutant 'the end of one that was killed for a rest is timed with the next' seats.rs 's/slot\.doomed\.take\(\)(\.map\(\|doomed\| now\.since\(doomed\)\);\n\s+let until)/slot.doomed$1/'
mutant 'a device with one that ends as asked is lost' seats.rs 's/\n\s+\| SlotState::Stopping \{ \.\. \}(\n\s+\| SlotState::Waiting \{ \.\. \} => true,\n\s+SlotState::Stopped)/$1 | SlotState::Stopping { .. }/'
mutant 'one that ends as asked gives no hope' offers.rs 's/\n\s+\| SlotState::Stopping \{ \.\. \}(\n\s+\| SlotState::Waiting \{ \.\. \} => Prospect::Unknown,\n\s+SlotState::Stopped)/$1 | SlotState::Stopping { .. }/'
mutant 'a process starts beside one that ends as asked' seats.rs 's/\n\s+\| SlotState::Stopping \{ \.\. \}(\n\s+\| SlotState::Unkillable \{ \.\. \} => true,\n\s+SlotState::Stopped)/$1 | SlotState::Stopping { .. }/'
mutant 'a try that was called off is never made again' offers.rs 's/find\(&mut self\.devices, slot\.device\)\.call_off\(now\);//'
mutant 'a try that was called off need not be made again' device.rs 's/(fn call_off.*?)self\.service = Service::Quarantined \{ probe_at: Some\(now\) \};/$1_ = now;\n            self.service = Service::Open;/s'
mutant 'a rest closes the seats that are empty' offers.rs 's/slot\.starts = 0;/slot.starts = 0;\n            slot.close();/'
mutant 'whoever comes after a rest is a restart' offers.rs 's/slot\.starts = 0;//'
mutant 'what cannot be killed while the pool rests leaves its device in service' losses.rs 's/Phase::Draining \{ \.\. \} \| Phase::Resting \| Phase::Serving/Phase::Draining { .. } | Phase::Serving/'
mutant 'a device of a pool that rests is shown as one that starts soon' rows.rs 's/ if self\.has_nothing_to_do\(\)/ if false/'
mutant 'somebody starts for a pool that has come to its end by this' upkeep.rs 's/(self\.give_up_if_no_device\(now\);.*?)\n(\s+)(self\.start_workers\(now\);)/$3\n$2$1/s'

printf '\n%d caught, %d missed, %d could not be tried\n' "$caught" "$missed" "$broken"
[[ $missed == 0 && $broken == 0 ]]
