#!/usr/bin/env bash
# Plants one bug at a time in a copy of the pool's core and runs the simulator against it. A simulator
# that stays green proves little until every one of these makes it red.
#
#   tests/sim/mutants.sh [seeds] [name-part]
#
# A run of all bugs writes MUTANTS.md anew. With 0 seeds the script only says which bugs can no longer be
# planted because the text that they change is gone.
#
# The script works on copies under target/mutants, one per core, and only reads the working tree, but for MUTANTS.md.
# What it has found is kept there: a run that was ended goes on where it was, until the core, the simulator, the protocol
# or the bug changes.
set -euo pipefail

seeds=${1:-8000}
only=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$root/target/mutants
jobs=$(nproc)
# Building takes most of the time of most bugs, and the run of those that few seeds reach.
export CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_INCREMENTAL=true \
    CARGO_PROFILE_RELEASE_LTO=off
names=() paths=() changes=() sections=() section=

# section TITLE: what the bugs that follow are about.
section() { section=$1; }

# mutant NAME FILE PERL: a bug, and the substitution that makes it.
mutant() {
    [[ $1 == *"$only"* ]] || return 0
    names+=("$1") paths+=("$2") changes+=("$3") sections+=("$section")
}

# known BUG: where the result of a bug is kept, or of none.
known() {
    echo "$kept_in/$(sha256sum <<<"$seeds $1" | cut -c1-32)"
}

# prepare COPY: the workspace as it is, with the core and its simulator alone.
prepare() {
    local copy=$1
    rm -rf "$copy"
    mkdir -p "$copy"
    cp -r "$work"/tree/. "$copy"
    perl -0pe 's/^members = \[.*?\]/members = ["protocol", "supervisor\/core", "tests\/sim"]/ms; s/^default-members = .*\n//m' \
        "$work/tree/Cargo.toml" >"$copy/Cargo.toml"
    fresh "$copy"
}

# fresh COPY: the core as it is.
fresh() {
    rm -rf "$1/supervisor/core"
    cp -r "$work/tree/supervisor/core" "$1/supervisor/core"
}

# simulate COPY [SECONDS]: builds and runs the simulator on one core, seed after seed. Each process has that much of its
# time, since on a busy machine, a run is not to be taken for one that does not end; and 8 GiB of memory.
simulate() {
    (cd "$1" && ulimit -t "${2:-unlimited}" -v $((8 << 20)) && CARGO_TARGET_DIR=$1/../target RAYON_NUM_THREADS=1 SIM_SEEDS=$seeds \
        cargo test --offline --release --quiet -p gridpool-sim every_rule 2>&1)
}

# try COPY NUMBER: the first seed that fails with a bug, and the rule that it breaks; planted now, or what is known of it.
try() {
    local kept
    kept=$(known "${paths[$2]} ${changes[$2]}")
    if [[ ! -f $kept ]]; then
        plant "$@" >"$kept.$1"
        # What could not be tried is tried again.
        grep -q '^NOT' "$kept.$1" && kept=$kept.$1 || mv "$kept.$1" "$kept"
    fi
    cat "$kept"
}

# plant COPY NUMBER: plants a bug and runs the simulator.
plant() {
    local copy=$work/$1/gridpool path=${paths[$2]} output rule seed
    local file=$copy/supervisor/core/src/$path
    fresh "$copy"
    [[ -f $file ]] && perl -0pi -e "${changes[$2]}" "$file"
    if [[ ! -f $file ]] || cmp -s "$file" "$work/tree/supervisor/core/src/$path"; then
        echo 'NOT PLANTED | the text that it changes is gone'
    elif [[ $seeds == 0 ]]; then
        echo 'not run |'
    elif output=$(simulate "$copy" "$(<"$none")"); then
        echo 'MISSED |'
    elif grep -qE "SIGXCPU|memory allocation of" <<<"$output"; then
        echo 'any | (the core does not come to rest)'
    else
        rule=$(sed -n '/^broken: /{s///p;q}' <<<"$output")
        seed=$(sed -n '/^replay: SIM_SEED=/{s///p;q}' <<<"$output")
        if [[ -n $rule ]]; then
            echo "$seed | $rule"
        elif grep -q 'did not reach these' <<<"$output"; then
            echo 'all | (something is never reached)'
        else
            echo "NOT BUILT | $(grep -m1 '^error' <<<"$output")"
        fi
    fi
}

# try_all: tries every bug, some at a time; the rows come in order.
try_all() {
    local job number pids=()
    for ((job = 0; job < jobs; job++)); do
        for ((number = job; number < ${#names[@]}; number += jobs)); do
            try "$job" "$number" >"$work/row.new.$job"
            echo "${names[number]} | $(<"$work/row.new.$job")"
            mv "$work/row.new.$job" "$work/row.$number"
        done &
        pids+=($!)
    done
    for job in "${pids[@]}"; do
        wait "$job"
    done
}

# rows: the table of every section.
rows() {
    local number last=
    for number in "${!names[@]}"; do
        if [[ ${sections[number]} != "$last" ]]; then
            last=${sections[number]}
            printf '\n## %s\n\n| bug | planted in | first seed | broken rule |\n|---|---|---|---|\n' "$last"
        fi
        printf '| %s | %s | %s |\n' "${names[number]}" "${paths[number]}" "$(<"$work/row.$number")"
    done
}

write_document() {
    cat <<TEXT
# Bugs that the simulator must catch

\`tests/sim/mutants.sh\` wrote this file. It copies the core to \`target/mutants\`, plants one bug in each copy and runs
$seeds seeds; the ordinary test runs 2,000. It fails if the simulator misses a bug, or if a bug can no longer be planted because
the line that it changes has changed. Run it after every change to \`supervisor/core/src\` or to the simulator, and add a
line to it for every bug that a test or a user found.

    tests/sim/mutants.sh                 every bug, 8,000 seeds; writes this file
    tests/sim/mutants.sh 500 drain       the bugs whose name contains \`drain\`, 500 seeds
    tests/sim/mutants.sh 0               only says which bugs can no longer be planted

The seed is the first that fails, and the rule is the one that it breaks; the rules are functions in \`tests/sim/model\`.

The simulator caught $caught of ${#names[@]} bugs.
TEXT
    rows
}

section 'Generations and messages'
mutant 'of events that come together, the first alone is handled' lib.rs 's/for event in events \{/for event in events.into_iter().take(1) {/'
mutant 'of events that come together, the last is handled first' lib.rs 's/for event in events \{/for event in events.into_iter().collect::<Vec<_>>().into_iter().rev() {/'
mutant 'no generation fence' pool.rs 's/self\.slots\.find\(worker\);\n(\s+)match index/self.slots.iter().position(|slot| slot.device == worker.device \&\& slot.group == worker.group \&\& slot.has_process());\n$1match index/'
mutant 'a dead process is still heard' pool.rs 's/(\n\s+)(None => self\.groups\[worker\.group\]\.counters\.stale)/$1None if self.devices.at(worker.device).service(worker.group).latest == Some(worker) => {}$1$2/'
mutant 'an answer for another attempt of the job counts' pool/outstanding.rs 's/position\(\|sent\| sent\.attempt == attempt\)/position(|sent| sent.attempt.job == attempt.job)/'
mutant 'the answer of a worker being killed is dropped' pool/process.rs 's/(Stage::Killed\(Killed \{ )outstanding: Some\(outstanding\), (\.\. \}\) => \{\s+)outstanding\.answer\(now, attempt, grace\)/$1$2Answered::Unknown/'
mutant 'stale messages are not counted' pool.rs 's/None => self\.groups\[worker\.group\]\.counters\.stale \+= 1/None => {}/'

section 'Jobs'
mutant 'a bundle is convicted as a job is' pool/job.rs 's/if self\.request\.is_bundle\(\) \{ 1 \} else \{ config\.poison_deaths \}/config.poison_deaths/'
mutant 'a bundle that a worker died of is not given back' pool.rs 's/job\.request\.is_bundle\(\) && !job\.orphaned/false/'
mutant 'the client of a bundle that is given back hears nothing' pool.rs 's/if goes_apart \{/if goes_apart \&\& false {/'
mutant 'the client of a bundle that is given back hears a verdict too' pool.rs 's/!is_quiet && !goes_apart/!is_quiet/'
mutant 'a bundle that is given back is remembered' pool.rs 's/ && !job\.is_given_back && !goes_apart;/ \&\& !job.is_given_back;/'
mutant 'the content of a bundle is hashed' pool/denylist.rs 's/ && !job\.request\.is_bundle\(\) \{/ {/'
mutant 'a bundle goes past the denylist' pool/submissions.rs 's/request\.is_bundle\(\) && self\.denylist\.has_of/false \&\& self.denylist.has_of/'
mutant 'a bundle larger than a limit waits for room' pool/submissions.rs 's/request\.is_bundle\(\) && most/request.is_bundle() \&\& false \&\& most/'
mutant 'a bundle is one job to the limit of its client' pool/submissions.rs 's/count_of\(client, group\) \+ jobs >/count_of(client, group) + 1 >/'
mutant 'a bundle is one job in the queue' pool.rs 's/let \(cost, jobs\) = \(job\.shards\[shard\]\.cost, job\.request\.jobs as usize\)/let (cost, jobs) = (job.shards[shard].cost, 1)/'
mutant 'a bundle is one job in an account' pool/accounts.rs 's/own\.sums\.done \+= u64::from\(request\.jobs\)/own.sums.done += 1/'
mutant 'poison one death late' pool/denylist.rs 's/job\.deaths >= job\.deaths_max/job.deaths > job.deaths_max/'
mutant 'poison one death early' pool/denylist.rs 's/job\.deaths >= job\.deaths_max/job.deaths + 1 >= job.deaths_max/'
mutant 'a hang is no evidence' pool/kill.rs 's/policy\.response\(FaultCode::Hang\) == Response::Suspect/policy.response(FaultCode::Hang) == Response::Retry/'
mutant 'a bare SIGKILL is evidence' pool/losses.rs 's/Self::Freed \| Self::Killed \| Self::RanOn \| Self::Unbegun => false/Self::Freed | Self::RanOn | Self::Unbegun => false,\n            Self::Killed => true/'
mutant 'one attempt too many' pool/losses.rs 's/tries >= self\.config/tries > self.config/'
mutant 'one attempt too few' pool/losses.rs 's/tries >= self\.config/tries + 1 >= self.config/'
mutant 'idempotent is ignored' pool/losses.rs 's/!job\.request\.idempotent/false/'
mutant 'device errors do not count' pool/answers.rs 's/job\.shards\[shard\]\.device_errors \+= 1;//'
mutant 'a job is lost with a worker that was killed' pool/process.rs 's/(Stage::Killed\(killed\) => killed\.outstanding),/$1.filter(|_| false),/'
mutant 'a job is lost with an unkillable worker' pool/losses.rs 's/if let Some\(outstanding\) = outstanding \{/if let Some(outstanding) = outstanding.filter(|_| false) {/'
mutant 'the deadline is checked one tick late' pool/upkeep.rs 's/if at > now \{\n(\s+)return/if at >= now {\n$1return/'
mutant 'the pool does not wake for deadlines' pool/upkeep.rs 's/\[self\.next_of_groups\(\), job\]/[self.next_of_groups(), job.filter(|_| false)]/'
mutant 'a worker drops an attempt before its deadline' pool/job.rs 's/self\.deadline\.since\(now\) \+ DROP_MARGIN/self.deadline.since(now)/'
mutant 'a later attempt of a job has its whole time again' pool/job.rs 's/self\.deadline\.since\(now\) \+ DROP_MARGIN/self.request.deadline + DROP_MARGIN/'
mutant 'a late job does not free its device' pool/outstanding.rs 's/sent\.free_at = Some\(free_at\);/sent.free_at = Some((free_at.0.after(Duration::from_secs(3_600)), free_at.1));/'
mutant 'a worker that makes progress is killed for a cancelled job' pool/outstanding.rs 's/first\.max\(progressed\.after\(PROGRESS_EVERY_MAX\)\)/first/'
mutant 'a worker whose jobs are all cancelled is killed before the last grace' pool/outstanding.rs 's/cut_off\(\)\.map\(\|\(at, _\)\| at\)\.max\(\)/cut_off().map(|(at, _)| at).min()/'
mutant 'a worker that makes progress runs on for a cancelled job' pool/outstanding.rs 's/Some\(_\) if self\.front\.unanswered\.cut_off == self\.front\.sent\.len\(\) =>/Some(_) if false =>/'
mutant 'a cancelled job has no grace' pool/process.rs 's/cut_off\(attempt, now\.after\(grace\), outcome\)/cut_off(attempt, now.after(grace * 0), outcome)/'
mutant 'a late job has no grace' pool/process.rs 's/cut_off\(attempt, now\.after\(grace\), outcome\)/cut_off(attempt, if outcome == AttemptOutcome::Deadline { now } else { now.after(grace) }, outcome)/'
mutant 'any client may cancel' pool/jobs.rs 's/self\.own\.get\(&\(client, key\)\)\.copied\(\)/self.own.iter().find(|((_, own), _)| (*own, client) == (key, client)).map(|(_, \&job)| job)/'
mutant 'the verdict is given twice' pool.rs 's/(self\.actions\.push_back\(Action::Finish \{ client, job: id, key, receipt), encoded \}\);/let again = receipt.clone();\n        $1, encoded: encoded.clone() });\n        if again.attempts.len() > 1 { self.actions.push_back(Action::Finish { client, job: id, key, receipt: again, encoded }); }/'
mutant 'a receipt forgets the attempt that was cut off' pool/losses.rs 's/job\.failed\(now, shard, process\.device_info\(\), outcome, String::new\(\)\);/job.shards[shard].state = super::shard::ShardState::Ended;/'

section 'Clients'
mutant 'queue one too deep' pool/submissions.rs 's/state\.queue\.jobs\(\) \+ jobs > config/state.queue.jobs() + jobs > 1 + config/'
mutant 'one job too many of a principal' pool/submissions.rs 's/state\.queue\.jobs_of\(own\) \+ jobs > jobs_max/state.queue.jobs_of(own) + jobs > 1 + jobs_max/'
mutant 'kills cost a principal nothing' pool/upkeep.rs 's/kills\.spend\(now, principal, kills_max, kill_refill\);/_ = (kills, principal, kills_max, kill_refill);/'
mutant 'a principal may cost one worker more' pool/budget.rs 's/checked_sub\(max\)/checked_sub(max + 1)/; s/own\.len\(\) < max/own.len() <= max/'
mutant 'no one makes room' pool/room.rs 's/now < sent\.front\.since\.after\(YOUNG\)/false/'
mutant 'an old dispatch makes room' pool/room.rs 's/since\.after\(YOUNG\)/since.after(YOUNG * 100)/'
mutant 'a job makes room that must not run twice' pool/room.rs 's/may && job\.request\.idempotent && !job\.orphaned/may/'
mutant 'what makes room for another stands in its way still' pool/answers.rs 's/if job\.shards\[shard\]\.makes_room => \{/if job.shards[shard].made_room > 100 => {/'
mutant 'an attempt is asked twice' pool/losses.rs 's/!orphaned && !job\.shards\[shard\]\.makes_room/!orphaned/'
mutant 'a small shard waits behind a large one of others' pool/dispatch.rs 's/\(!waits\)\.then_some/(!waits || true).then_some/'
mutant 'a shard makes room for one that is hardly smaller' pool/room.rs 's/cost\.saturating_mul\(LARGER\)/cost.saturating_mul(LARGER \/ 8)/'
mutant 'a shard that is worth nothing makes room' pool/room.rs 's/worth\.max\(cost/0.max(cost/'
mutant 'jobs that wait begin although their principal has cost too many workers' pool/upkeep.rs 's/state\.queue\.hold\(&(state\.kills\.all_spent\(now, self\.config\.kills_max\))\);/_ = $1;/'
mutant 'nobody wakes for jobs that were held' pool/upkeep.rs 's/\.chain\(back\)//'
mutant 'jobs that are held wait for devices that are gone' pool/queue.rs 's/self\.in_order\(\)\.chain\(held\)/_ = held;\n        self.in_order()/'
mutant 'a shard that is lost while its principal is held goes on' pool/queue.rs 's/match self\.held\.get_mut\(&owner\.principal\) \{/match self.held.get_mut(\&owner.principal).filter(|_| false) {/'
mutant 'all kills are given back at once' pool/budget.rs 's/own\.back\(\)\.map_or\(now, \|&last\| last\.max\(now\)\)/now/'
mutant 'one job over the quota' pool/accounts.rs 's/own\.jobs \+ jobs > max/own.jobs + jobs > max + 1/'
mutant 'one byte over the quota' pool/accounts.rs 's/(own\.bytes\.saturating_add\(request\.bytes\)) > max/$1 > max + 1/'
mutant 'a job that never fits its quota is told to try again' pool/accounts.rs 's/bytes > max\)\?;/bytes > max \&\& false)?;/'
mutant 'a job as large as its quota is refused' pool/accounts.rs 's/max\| bytes > max/max| bytes >= max/'
mutant 'a user without jobs is told to try again' pool/accounts.rs 's/jobs_max\.is_some_and\(\|max\| u64::from\(\*jobs\) > max\)/jobs_max == Some(u64::MAX)/'
mutant 'all device time of a quota may not be used' pool/accounts.rs 's/owed >= rate\.time/owed > rate.time/'
mutant 'a job that is refused may come again too early' pool/accounts.rs 's/as_millis\(\) \+ 1;/as_millis();/'
mutant 'no device time is paid back' pool/accounts.rs 's/self\.owed\.saturating_sub\(paid\(rate\)\)/{ _ = paid; self.owed }/'
mutant 'a charge forgives what is owed' pool/accounts.rs 's/own\.owed = own\.owed\(now, rate\) \+ /own.owed = /'
mutant 'the jobs of a quota are not given back' pool/accounts.rs 's/own\.jobs -= u64::from\(request\.jobs\);/own.jobs -= u64::from(request.jobs) * u64::from(own.jobs > 1);/'
mutant 'the bytes of a quota are not given back' pool/accounts.rs 's/own\.bytes = own\.bytes\.saturating_sub\(request\.bytes\);//'
mutant 'a principal has the quota of all others' quota.rs 's/self\.own\.get\(principal\)/self.own.get(principal).filter(|_| false)/'
mutant 'answers cost no device time' pool/answers.rs 's/self\.accounts\.charge\(now, &charge\.principal, charge\.time\);/_ = charge;/'
mutant 'a lost worker costs no device time' pool/losses.rs 's/self\.accounts\.charge\(now, &charge\.principal, charge\.time\);/_ = charge;/'
mutant 'attempts that run together pay the whole time each' pool/outstanding.rs 's/passed \/ cost\.max\(1\)/passed \/ cost.clamp(1, 1)/'
mutant 'a dispatch pays while it waits behind another' pool/outstanding.rs 's/self\.front\.sent\.iter_mut\(\)\.for_each\(\|sent\| sent\.began = self\.clock\.now\);//'
mutant 'an attempt beside others pays from their beginning' pool/outstanding.rs 's/(other\.sent\.iter_mut\(\)\.for_each\(\|sent\| sent\.began = )self\.clock\.now/${1}0/'
mutant 'a pause of the supervisor is charged' pool/outstanding.rs 's/self\.clock\.read = self\.clock\.read\.after\(gap\);//'
mutant 'one byte too few of a principal' pool/submissions.rs 's/request\.inline_bytes > bytes_max/request.inline_bytes >= bytes_max/'
mutant 'a principal has all of the queue while others wait' pool/submissions.rs 's/= state\.queue\.principals_with\(own\);/= 1;/'
mutant 'the bytes of a principal are not given back' pool/groups.rs 's/own\.inline_bytes -= request\.inline_bytes;//'
mutant 'one job too many for a client' pool/submissions.rs 's/self\.jobs\.count_of\(client, group\) \+ jobs > config/self.jobs.count_of(client, group) + jobs > 1 + config/'
mutant 'one byte too few' pool/submissions.rs 's/request\.inline_bytes > config/request.inline_bytes >= config/'
mutant 'bytes are not given back' pool/groups.rs 's/self\.inline_bytes -= request\.inline_bytes;//'
mutant 'a drain accepts jobs' pool/submissions.rs 's/if self\.is_draining\(\) && \(!self\.is_replaced\(\) \|\| state\.is_leaving\(\)\) \{/if state.is_leaving() {/'
mutant 'a replayed key runs again' pool/submissions.rs 's/self\.verdicts\.find\(&request\.principal, key\) \{/self.verdicts.find(\&request.principal, key).filter(|_| false) {/'
mutant 'a key of another client is accepted' pool/submissions.rs 's/else if live\.client == client \{/else if live.client == client || true {/'
mutant 'a live key is replaced by another job of it' pool/submissions.rs 's/if live\.request\.fingerprint != request\.fingerprint \{/if false {/'
mutant 'a key is every principal.s' pool/jobs.rs 's/self\.keys\.get\(&\(principal\.clone\(\), key\)\)\.copied\(\)/self.keys.iter().find(|((_, own), _)| (*own, principal) == (key, principal)).map(|(_, \&job)| job)/'
mutant 'a remembered key is another job.s' pool/submissions.rs 's/ if fingerprint == request\.fingerprint => \{/ if fingerprint == fingerprint => {/'
mutant 'a verdict is every principal.s' pool/verdicts.rs 's/self\.named\(&\(principal, key\)\)\?/self.all.iter().rev().find(|own| (own.name.1, principal) == (key, principal))?/'
mutant 'a connection has one key twice' pool/submissions.rs 's/if self\.jobs\.own\(client, key\)\.is_some\(\) \{/if false {/'
mutant 'one verdict too many is kept' pool/verdicts.rs 's/self\.all\.len\(\) > self\.kept/self.all.len() > self.kept + 1/'
mutant 'the verdict of a vanished client is remembered' pool.rs 's/let is_kept = !job\.orphaned && /let is_kept = /'
mutant 'queued jobs outlive their client' pool/submissions.rs 's/self\.unqueue\(id\);//'
mutant 'the job of a vanished client runs again' pool/losses.rs 's/if job\.orphaned \{/if false {/g'

section 'Devices and their deaths'
mutant 'quarantine one death late' pool/service.rs 's/idle_deaths >= config/idle_deaths > config/'
mutant 'quarantine one death early' pool/service.rs 's/idle_deaths >= config/idle_deaths + 1 >= config/'
mutant 'quarantine one failed start late' pool/service.rs 's/start_failures >= config/start_failures > config/'
mutant 'failed starts are not forgiven' pool/service.rs 's/(self\.never_ready = false;\n\s+)self\.start_failures = 0;/$1/'
mutant 'old deaths count for ever' pool/service.rs 's/now\.since\(at\) > config\.restart_window/false/'
mutant 'a bare SIGKILL counts against the device' pool/exits.rs 's/(if self\.response == Response::Retry =>\s+\{\s+)Blame::Outside/$1Blame::Device/'
mutant 'freeing a device counts against it' pool/exits.rs 's/(KillCause::FreeDevice\(_\) \| KillCause::Leaving\) => )Blame::Pool/$1Blame::Device/'
mutant 'exit code 73 is restarted' pool/exits.rs 's/\[self\.response, self\.of_exit\]\.contains\(&Response::Halt\)/self.exit.code() != FaultCode::Exit(73) \&\& [self.response, self.of_exit].contains(\&Response::Halt)/'
mutant 'a program that does not exist is started again' pool/exits.rs 's/is_final: response == Response::Halt,/is_final: false,/'
mutant 'a start that failed without descriptors counts' pool/exits.rs 's/false => Blame::Outside/false => Blame::Device/'
mutant 'a job of a worker killed from outside avoids its device' pool/losses.rs 's/if loss\.kind == LossKind::Killed \{/if false {/'
mutant 'a pause is not excused' lib.rs 's/&& gap >= PAUSE_MIN/&& gap > PAUSE_MIN * 1_000/'
mutant 'a short pause is excused' lib.rs 's/&& gap >= PAUSE_MIN/&& gap * 2 >= PAUSE_MIN/'
mutant 'a pause excuses only silence' pool/process.rs 's/\*at = at\.after\(gap\);/_ = (at, gap);/; s/killed\.give_up_at\.map\(\|at\| at\.after\(gap\)\)/killed.give_up_at/'
mutant 'a pause excuses no grace' pool/outstanding.rs 's/sent\.free_at = sent\.free_at\.map\(\|\(at, why\)\| \(at\.after\(gap\), why\)\);//'
mutant 'the report names the wrong worker' pool/rows.rs 's/\(process\.worker\.group, !process\.serves\(\)\)/(process.worker.group, process.serves())/'
mutant 'a device that was READY once counts as misconfigured' pool/service.rs 's/self\.never_ready = false;//'
mutant 'a receipt does not name the device' pool/process.rs 's/self\.introduced\.as_ref\(\)(\.map\(\|introduced\| Arc::clone\(&introduced\.device\)\))/self.introduced.as_ref().filter(|_| false)$1/'
mutant 'no backoff' pool/slots.rs 's/(self\.backoff_steps \+= 1;\n\s+)wait\n/$1wait * 0\n/'
mutant 'the first restart waits' pool/slots.rs 's/self\.backoff_steps\.checked_sub\(1\)/self.backoff_steps.checked_sub(0)/'
mutant 'the backoff has no cap' pool/slots.rs 's/\.min\(config\.backoff_max\)//'
mutant 'READY resets the backoff' pool/slots.rs 's/(self\.took_end = process\.killed)/if process.was_ready() {\n            self.backoff_steps = 0;\n        }\n        $1/'
mutant 'work does not reset the backoff' pool/slots.rs 's/self\.jobs_done \+= 1;\n\s*self\.backoff_steps = 0;/self.jobs_done += 1;/'
mutant 'a suspect gets a job' pool/process.rs 's/self\.is_heard\(now, config\)\.then_some\(since\)/(now.since(self.heard) < config.heartbeat_kill).then_some(since)/'
mutant 'a worker that starts may be silent' pool/process.rs 's/self\.heard\.after\(config\.heartbeat_start\)\.min\(\*ready_by\)/*ready_by/'
mutant 'silence is never noticed' pool/process.rs 's/Stage::Ready \{ \.\. \} \| Stage::Standby => Some\(silent\)/Stage::Ready { .. } => None,\n            Stage::Standby => Some(silent)/'
mutant 'a hung worker is given up at once' pool/process.rs 's/(Stage::Killed\(killed\) => killed\.give_up_at),/$1.map(|_| self.heard),/'
mutant 'a device is used beside its unkillable worker' pool/losses.rs 's/(= process\.give_up\(\) else \{ return \};)/$1\n        self.slots[index].vacate(now);\n        self.slots[index].open(now, None);/'
mutant 'a device that is being freed counts as lost' pool/slots.rs 's/(!self\.is_closed\(\) && !self\.process\(\))\.is_some_and\(Process::is_unkillable\)/$1.is_some_and(|process| process.killed().is_some())/'
mutant 'the device of the last failure is not avoided' pool/dispatch.rs 's/\(!unwanted\(index\) \|\| !is_near\(\)\)/(!unwanted(index) || !is_near() || true)/; s/\(unwanted\(index\), since, index\)/(since, index)/'

section 'Queue'
mutant 'a newcomer catches up' pool/turns.rs 's/\.max\(first\)\.max\(self\.reached\);/.max(first);/'
mutant 'a principal or client that rests owes nothing' pool/turns.rs 's/&& \*clock <= self\.reached\n//'
mutant 'a principal is not charged' pool/queue.rs 's/let cost = taken\.cost;/let cost = 0;/'
mutant 'the clients of a principal take no turns' pool/queue.rs 's/if pays \{ taken\.cost \} else \{ 0 \}/if pays { 0 } else { 0 }/'
mutant 'work is not charged' pool/turns.rs 's/before\.saturating_add\(cost\)/before.saturating_add(cost.min(1))/'
mutant 'clients go in order of their number' pool/turns.rs 's/\((member\.clock|before), key\.clone\(\)\)/(0, key.clone())/g'
mutant 'the last job of a client goes first' pool/queue.rs 's/waiting\.shards\.iter\(\)\.map\(move/waiting.shards.iter().rev().map(move/'

section 'Shards'
mutant 'a job is split as if no other were live' pool/shard.rs 's/live\.max\(1\)/u128::from(request.cost).max(1)/'
mutant 'a job with a verdict counts as live when others are split' pool/groups.rs 's/own\.cost -= u128::from\(request\.cost\);//'
mutant 'a job that must not run twice is split' pool/shard.rs 's/ \|\| !request\.idempotent//'
mutant 'a job whose result is not in shared memory is split' pool/shard.rs 's/ \|\| !request\.divisible//'
mutant 'one shard too many' pool/shard.rs 's/worth\.min\(most\)\.max\(1\)/(worth + 1).min(most).max(1)/'
mutant 'shards overlap' pool/shard.rs 's/end: item\(index \+ 1\) \}/end: (item(index + 1) + 1).min(request.items) }/'
mutant 'a job is OK with its first shard' pool/losses.rs 's/if self\.jobs\[id\]\.has_ended\(\) \{/if true {/'
mutant 'only the errors of the last shard are reported' pool/job.rs 's/self\.item_errors\.saturating_add\(report\.item_errors\)/report.item_errors/'
mutant 'shards share their attempts' pool/losses.rs 's/let tries = tried\.tries;/let tries: u32 = job.shards.iter().map(|shard| shard.tries).sum();/'
mutant 'shards run on after the verdict' pool/losses.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//g'
mutant 'the other shards of a job that failed have only a grace' pool/losses.rs 's/match outcome == AttemptOutcome::Preempted \{/match false {/'
mutant 'running shards count as waiting' pool/queue.rs 's/entry\.joins\.is_some\(\) \|\| !waiting\.has_job\(position\)/true/; s/is_whole \|\| !self\.has_job\(position\)/true/'

section 'Second dispatches'
mutant 'a second dispatch is sent while a device idles' pool/dispatch.rs 's/(let some_idle = self\.slots\.of_group\(group\)\.any\(\|\(_, slot\)\| is_idle\(slot\)\));/$1 \&\& match limits.concurrency {\n                Concurrency::Concurrent { .. } => true,\n                Concurrency::Exclusive { feed_cost_max, .. } => self.slots.of_group(group).all(|(_, slot)| slot.process().is_none_or(|own| own.feeds_behind(now, \&self.config, feed_cost_max).is_none())),\n            };/'
mutant 'a second dispatch waits behind a long one' pool/process.rs 's/\n\s+&& front\.cost <= feed_cost_max/\n            \&\& (front.cost <= feed_cost_max || true)/'
mutant 'a long dispatch waits behind another' pool/dispatch.rs 's/shard\.cost > feed_cost_max \|\| //'
mutant 'a second dispatch is sent while another device is about to serve' pool/dispatch.rs 's/if slots\.of_group\(group\)\.any\(\|\(_, slot\)\| soon\(slot\)\)/if false \&\& slots.of_group(group).any(|(_, slot)| soon(slot))/'
mutant 'joins make a second dispatch long' pool/dispatch.rs 's/join_cost_max\.min\(feed_cost_max\)/join_cost_max/'
mutant 'a second dispatch goes to the most loaded' pool/dispatch.rs 's/open\.min\(\)/open.max()/'
mutant 'a second dispatch is sent to a worker that may be killed soon' pool/process.rs 's/\n\s+&& !front\.is_cut_off\(\);/;/'
mutant 'a suspect gets a second dispatch' pool/process.rs 's/let may = self\.is_heard\(now, config\)\n/let may = (self.is_heard(now, config) || true)\n/'
mutant 'a job that must not run twice is a second dispatch' pool/dispatch.rs 's/ \|\| !job\.request\.idempotent \{/ {/'
mutant 'a second dispatch goes to the device where its job failed' pool/dispatch.rs 's/filter\(\|\(_, slot\)\| !avoids\(shard, slot\.device\)\)/filter(|_| true)/'
mutant 'small jobs overtake a large one for ever' pool/dispatch.rs 's/queue\.take_first\(/queue.take(/'
mutant 'no second dispatch is ever sent' pool/process.rs 's/(&& !front\.is_cut_off\(\);\n\s+may\.then_some\(front\))/$1.filter(|_| false)/'
mutant 'an answer of the second dispatch counts before it begins' pool/outstanding.rs 's/let Some\(answered\) = self\.front\.remove\(attempt\) else \{ return Answered::Unknown \};/let Some(answered) = self.front.remove(attempt) else {\n            let answered = self.second.as_mut().and_then(|second| second.remove(attempt));\n            let Some(answered) = answered else { return Answered::Unknown };\n            let charge = self.clock.charge(\&answered);\n            return Answered::Known { is_last: false, moved: false, charge };\n        };/'
mutant 'an answered attempt shares the time of those beside it' pool/outstanding.rs 's/\n\s+self\.unanswered\.cost -= u128::from\(answered\.cost\);//'
mutant 'bytes of answered attempts stay in the channel' pool/outstanding.rs 's/\n\s+self\.unanswered\.inline_bytes -= answered\.inline_bytes;//'
mutant 'an answered attempt stays cut off' pool/outstanding.rs 's/\n\s+self\.unanswered\.cut_off -= usize::from\(answered\.is_cut_off\(\)\);//'
mutant 'attempts that come beside others share no time' pool/outstanding.rs 's/\n\s+self\.unanswered\.cost \+= unanswered\.cost;//'
mutant 'attempts that come beside others have no bytes' pool/outstanding.rs 's/\n\s+self\.unanswered\.inline_bytes \+= unanswered\.inline_bytes;//'
mutant 'an attempt that was cut off has no grace when its dispatch begins' pool/outstanding.rs 's/\(at\.max\(now\.after\(grace\)\), why\)/(if at < now.after(grace) { at } else { now }, why)/'
mutant 'an attempt that was cut off before it began has endless grace' pool/outstanding.rs 's/sent\.free_at\.map\(\|\(at, why\)\| \(at\.max\(now\.after\(grace\)\), why\)\)/sent.free_at.filter(|_| false).map(|(_, why)| (now.after(grace), why))/'

section 'What waits behind another'
mutant 'no worker is killed for the dispatch behind it' pool/feed.rs 's/is_none_or\(\|at\| at > now\)/is_none_or(|at| at > now || true)/'
mutant 'the pool does not wake for a feed timeout' pool/upkeep.rs 's/\.chain\(feeds\)/.chain(feeds.filter(|_| false))/'
mutant 'a worker is killed for the dispatch behind it while no device idles' pool/feed.rs 's/idles\(other\) && may_take\(other\)/(idles(other) || true) \&\& may_take(other)/'
mutant 'a silent worker counts as idle for a feed timeout' pool/feed.rs 's/ && ends < other\.heard\.after\(self\.config\.heartbeat_suspect\)//'
mutant 'a worker is killed for a job that failed on the idle device' pool/feed.rs 's/idles\(other\) && may_take\(other\)/idles(other) \&\& (may_take(other) || true)/'
mutant 'others wait again behind a job that kept others waiting' pool/outstanding.rs 's/may_run_again && !is_suspect/may_run_again/'
mutant 'a job that kept others waiting joins again' pool/feed.rs 's/job\.suspects = Some\([^;]+;/_ = job;/'
mutant 'a job waits behind one that must not run twice' pool/outstanding.rs 's/may_run_again && !is_suspect/(may_run_again || true) \&\& !is_suspect/'
mutant 'a job that kept others waiting counts as hung' pool/feed.rs 's/now, index, KillCause::FreeDevice\(Freed::OthersWait\)/now, index, KillCause::Hang/'
mutant 'a pause counts towards the feed timeout' pool/outstanding.rs 's/dispatch\.since = dispatch\.since\.after\(gap\);//'

section 'Joins'
mutant 'other programs join' pool/queue.rs 's/\*self\.joining\.get\(with\)\?/self.joining.values().sum()/; s/waiting\.joiners\.get\(with\)\?/waiting.joiners.iter().find(|(other, _)| other.suspects == with.suspects)?.1/'
mutant 'joins cost too much' pool/dispatch.rs 's/dispatch\.cost\.saturating_add\(shard\.cost\) <= cost_max/dispatch.cost <= cost_max/'
mutant 'joins have too many inline bytes' pool/dispatch.rs 's/inline_bytes \+ job\.request\.inline_bytes <=/inline_bytes <=/'
mutant 'shards join each other' pool/job.rs 's/self\.shards\.len\(\) == 1\n\s+&& //'
mutant 'a job that must not run twice joins' pool/job.rs 's/&& self\.request\.idempotent\n//'
mutant 'a job that shared a death joins again' pool/job.rs 's/suspects: self\.suspects \}\)/suspects: None })/'
mutant 'a job that joins is not charged' pool/queue.rs 's/(\}\)\?;\n\s+)self\.take_turn\(&principal, client, position\);/$1self.remove(\&Owner { principal, client }, position);/'
mutant 'a job joins on the device where it failed' pool/dispatch.rs 's/\n\s+&& \(!avoids\(shard, worker\.device\) \|\| with\.suspects\.is_some\(\)\)//'
mutant 'searches join' pool/job.rs 's/\n\s+&& !matches!\(self\.request\.work, Work::Search \{ \.\. \}\)//'
mutant 'no job ever joins' pool/queue.rs 's/\*self\.joining\.get\(with\)\?/*self.joining.get(with).filter(|_| false)?/'

section 'Deaths that several share'
mutant 'a dispatch that had not begun is suspect' pool/losses.rs 's/self\.preempt\(now, sent\.attempt, loss\);\n(\s+)\}\n(\s+)let alone/self.on_attempt_lost(now, sent.attempt, loss, false);\n$1}\n$2let alone/'
mutant 'each of several suspects is denylisted' pool/losses.rs 's/let alone = front\.sent\.len\(\) == 1;/let alone = front.sent.len() >= 1;/'
mutant 'a shared death is forgotten' pool/losses.rs 's/self\.jobs\[\*id\]\.suspects = suspects;/_ = (id, suspects);/'
mutant 'a preempted attempt counts' pool/job.rs 's/shard\.tries -= 1;//'
mutant 'jobs beside one that is cut off lose an attempt' pool/losses.rs 's/(LossKind::Unbegun => \{\n\s+self\.)preempt\(now, attempt, loss\)/$1on_attempt_lost(now, attempt, loss, true)/'
mutant 'a preempted job runs again while its process may write' pool/job.rs 's/!self\.writes_shared_memory\(\) && self\.request\.idempotent/self.request.idempotent/'

section 'Slots'
mutant 'a standby gets jobs' pool/starts.rs 's/if !is_served \{/if true || !is_served {/'
mutant 'the newest standby takes over' pool/starts.rs 's/min_by_key\(\|process\| process\.worker\.generation\)/max_by_key(|process| process.worker.generation)/'
mutant 'no standby takes over' pool/starts.rs 's/(standbys\.min_by_key\(.*?generation\))/$1.filter(|_| false)/'
mutant 'a standby takes over only when the old process is gone' pool/kill.rs 's/self\.promote\(now, worker\.device, worker\.group\);//'
mutant 'no standby takes over from a process that is ending by itself' pool/exits.rs 's/self\.promote\(now, worker\.device, worker\.group\);//'
mutant 'a silent standby is left alone' pool/process.rs 's/Stage::Ready \{ \.\. \} \| Stage::Standby => Some\(silent\)/Stage::Ready { .. } => Some(silent),\n            Stage::Standby => None/'
mutant 'a standby is left behind by a drain' pool/upkeep.rs 's/\|process\| !process\.is_ending\(\)/|process| !process.is_ending() \&\& !process.stands_by()/'
mutant 'two processes start while none serves' pool/slots.rs 's/self\.has_process\(\) \|\| self\.reclaiming/self.process().is_some_and(|own| !own.is_starting()) || self.reclaiming/'
mutant 'a process starts beside one that is being killed' pool/slots.rs 's/self\.has_process\(\) \|\| self\.reclaiming/self.process().is_some_and(|own| own.killed().is_none() || own.is_unkillable()) || self.reclaiming/'
mutant 'a process starts before the memory of its sibling is free' pool/slots.rs 's/self\.has_process\(\) \|\| self\.reclaiming\(\)\.is_some\(\)/self.has_process()/'
mutant 'no process waits for memory' pool/exits.rs 's/reclaims: true/reclaims: false/'
mutant 'a process that never started leaves memory behind' pool/exits.rs 's/reclaims: false/reclaims: true/'
mutant 'standbys wait for the old process' pool/starts.rs 's/\(is_served \|\| !is_held\(\)\)/(!self.slots.of(slot.device, slot.group).any(|own| own.holds_device() \&\& !own.serves()))/'
mutant 'there are no standbys' pool/starts.rs 's/\(is_served \|\| !is_held\(\)\)/(!is_held())/'
mutant 'a device serves on beside a process that cannot be killed' pool/losses.rs 's/self\.give_up_device\(now, worker\.device, &fault\);/_ = \&fault;/'
mutant 'slots number their processes apart' pool/starts.rs 's/let worker = (device\.next_worker\(slot\.group\));/let mut worker = $1;\n        worker.generation = slot.restarts() + 1 + u32::from(slot.due() != Some(Timestamp::default()));/'
mutant 'a retry waits for a process that starts beside the active worker' pool/slots.rs 's/process\.is_starting\(\) && !self\.is_served\(slot\.device, slot\.group\)/process.is_starting()/'
mutant 'the first process of a slot is a restart' pool/starts.rs 's/slot\.restarts\(\) > 0/worker.generation > 1/'
mutant 'the memory of any process of the device counts' pool/starts.rs 's/memory\.worker == worker/memory.worker.device == worker.device/'
mutant 'waiting for memory has no timeout' pool/slots.rs 's/reclaiming\.map\(\|memory\| memory\.until\)/reclaiming.and(None)/'
mutant 'a pause does not excuse memory' pool/slots.rs 's/memory\.until = memory\.until\.after\(gap\);/_ = memory;/'

section 'What deaths mean'
mutant 'the death of a standby counts' pool/starts.rs 's/let counts = vacated\.served \|\|/let counts = true || vacated.served ||/'
mutant 'a failed start beside the active worker counts' pool/starts.rs 's/\(!vacated\.was_ready && !is_served\)/!vacated.was_ready/'
mutant 'a device goes out of service although its standby serves' pool/starts.rs 's/(service\.note\(now, death, &self\.config\))\n\s+&& !is_served/$1/'
mutant 'a device is judged before its standby takes over' pool/exits.rs 's/(self\.promote\(now, worker\.device, worker\.group\);)(.*?self\.on_vacated\(now, index, vacated\);)/$2\n        $1/s'
mutant 'a standby that can never start is started again at once' pool/starts.rs 's/if is_final && !counts \{/if is_final \&\& !counts \&\& false {/'
mutant 'a death during bisection counts against the device' pool/exits.rs 's/match has_suspects \{/match has_suspects \&\& false {/'
mutant 'a job that killed a worker alone is no suspect' pool/job.rs 's/self\.suspects\.is_some\(\) \|\| self\.deaths > 0/self.suspects.is_some()/'
mutant 'a job that shared a loss is no suspect' pool/job.rs 's/self\.suspects\.is_some\(\) \|\| self\.deaths > 0/self.deaths > 0/'
mutant 'a process whose beacon was lost counts as killed by the pool' pool/exits.rs 's/killed\.filter\(\|killed\| killed\.cause != KillCause::Beacon\)/killed/'

section 'Other limits'
mutant 'a running pool keeps its limits' pool.rs 's/self\.config = config\.over\(&self\.config\);/let _ = config;/'
mutant 'other limits do not reach the groups' pool.rs 's/state\.limits = self\.config\.of\(group\.role\(\)\);/let _ = (group, \&state);/'
mutant 'a running pool changes the windows of its workers' pool.rs 's/config\.over\(&self\.config\)/config/'
mutant 'another limit of the denylist does not count' pool/denylist.rs 's/(fn limit.*?\n\s+)self\.max = max;/$1let _ = max;/s'
mutant 'another limit of the verdicts does not count' pool/verdicts.rs 's/\(self\.kept, self\.bytes_max\) = \(kept, bytes_max\);/let _ = (kept, bytes_max);/'
mutant 'another timeout of commands does not count' lib.rs 's/self\.command_timeout = config\.command_timeout;//'

section 'Quarantine'
mutant 'a device is never probed' pool/service.rs 's/\(!is_final\)\.then\(\|\| now\.after\(wait\)\)/(!is_final).then(|| now.after(wait)).filter(|_| false)/'
mutant 'a halted device is probed' pool/service.rs 's/\(!is_final\)\.then\(/(!is_final || true).then(/'
mutant 'every probe waits as long as the first' pool/service.rs 's/saturating_pow\(self\.probes\)/saturating_pow(self.probes.min(0))/'
mutant 'the wait between probes has no cap' pool/service.rs 's/saturating_mul\(factor\)\.min\(config\.probe_max\)/saturating_mul(factor)/'
mutant 'work does not end the probation' pool/service.rs 's/(self\.idle_deaths\.clear\(\);\n\s+)self\.probes = 0;/$1/'
mutant 'READY ends the probation' pool/service.rs 's/self\.never_ready = false;/self.never_ready = false;\n        self.probes = 0;/'
mutant 'there is no probation' pool/service.rs 's/\(self\.probes > 0 && death\.idle\)/(self.probes > 0 \&\& death.idle \&\& false)/'
mutant 'a failed probe changes nothing' pool/starts.rs 's/ServiceState::Probing => \{\n/ServiceState::Probing => {\n                if now.0.as_nanos() > 0 {\n                    return;\n                }\n/'
mutant 'a probe starts beside an old process' pool/starts.rs 's/first == Some\(index\) && !is_held\(\)/first == Some(index)/'
mutant 'a device that is being probed may serve' pool/service.rs 's/self\.state == ServiceState::Open\n/!matches!(self.state, ServiceState::Quarantined { .. })\n/'
mutant 'READY does not bring the device back' pool/service.rs 's/\n\s+self\.state = ServiceState::Open;//'
mutant 'a starting process survives when its device goes out of service' pool/starts.rs 's/self\.clear\(now, worker\.device, worker\.group\);//'
mutant 'nothing is released' pool/service.rs 's/\*probe_at = Some\(now\);/_ = (probe_at, now);/'
mutant 'a release does not probe at once' pool/service.rs 's/\*probe_at = Some\(now\);/*probe_at = probe_at.or(Some(now));/'
mutant 'an old process quarantines the device again' pool/starts.rs 's/ServiceState::Quarantined \{ \.\. \} => return,/ServiceState::Quarantined { .. } => {}/'
mutant 'deaths outlive the quarantine' pool/service.rs 's/(self\.start_failures = 0;\n\s+)self\.idle_deaths\.clear\(\);/$1/'
mutant 'a device out of service may serve' pool/starts.rs 's/self\.devices\.iter\(\)\.filter\(\|device\| device\.service\(group\)\.is_open\(\)\)/self.devices.iter()/'
mutant 'a device that is being probed does not count as misconfigured' pool/service.rs 's/!self\.is_open\(\) && self\.never_ready/matches!(self.state, ServiceState::Quarantined { .. }) \&\& self.never_ready/'

section 'What the driver reports'
mutant 'a GPU that is lost is probed' pool/driver.rs 's/self\.quarantine_device\(now, id, true, cause, &why\)/self.quarantine_device(now, id, false, cause, \&why)/'
mutant 'a fault that quarantines only ends the processes' pool/service.rs 's/self\.quarantine\(now, Rule::Fault, is_final, config\);/_ = (now, config);/'
mutant 'processes survive when their device goes out of service' pool/driver.rs 's/(pool\.services_changed = true;\n\s+)pool\.end_workers\(now, id, group, cause\);/$1_ = cause;/'
mutant 'a fault of a device that is out of service delays its next probe' pool/service.rs 's/ServiceState::Quarantined \{ \.\. \} if !is_final => return false,/ServiceState::Quarantined { .. } if !is_final => self.quarantine(now, Rule::Fault, is_final, config),/'
mutant 'a device that is out of service cannot be halted' pool/service.rs 's/\*probe_at = None/_ = probe_at/'
mutant 'a fault that is reported twice counts as two' pool/incidents.rs 's/ago <= config\.incident_window/ago <= config.incident_window * 0/'
mutant 'a repeated fault counts as a first one' pool/incidents.rs 's/=> Incident::Repeated,/=> Incident::First,/'
mutant 'a pool that leaves takes devices out of service' pool/driver.rs 's/!is_known \|\| self\.groups\.iter\(\)\.all\(\|\(_, group\)\| group\.is_leaving\(\)\)/!is_known/; s/if pool\.groups\[group\]\.is_leaving\(\) \|\| /if /; s/if !pool\.groups\[group\]\.is_leaving\(\) && /if /'
mutant 'a fault of the device counts as a hang' pool/driver.rs 's/self\.kill\(now, index, cause\)/self.kill(now, index, KillCause::Hang)/'
mutant 'a fault of the device is no evidence against its job' pool/driver.rs 's/self\.kill\(now, index, cause\)/self.kill(now, index, KillCause::FreeDevice(Freed::DeviceOut))/'
mutant 'a report about a dead worker kills the next one' pool/driver.rs 's/if is_expected \{\n/if is_expected \&\& response != Response::QuarantineOnRepeat {\n/'
mutant 'a device fault that a job may cause is no evidence' pool/kill.rs 's/evidence: fault\.may_be_a_jobs_doing\(\)/evidence: fault.may_be_a_jobs_doing() \&\& false/'
mutant 'broken memory is evidence against the job' pool/kill.rs 's/evidence: fault\.may_be_a_jobs_doing\(\)/evidence: fault.may_be_a_jobs_doing() || true/'
mutant 'a device fault counts as a wrong set-up' pool/service.rs 's/self\.never_ready && self\.refused/self.never_ready/'
mutant 'a standby outlives its device' pool/driver.rs 's/\|process\| !process\.is_ending\(\)/|process| !process.is_ending() \&\& !process.stands_by()/'
mutant 'the fault that a worker names is ignored' pool/exits.rs 's/response_to_exit\(exit\.code\(\), exit\.fault\)/response_to_exit(exit.code(), exit.fault.filter(|_| false))/'
mutant 'a job that must not run twice survives when its device goes out of service' pool/losses.rs 's/(job\.preempted\(.*?false => )self\.retry_or_fail\(now, id, shard, &loss\.why\)/$1match self.jobs[id].orphaned {\n                true => self.finish_if_ended(now, id),\n                false => self.enqueue(id, shard),\n            }/s'

section 'Channels that close'
mutant 'a worker that closed its channel lives on' pool/process.rs 's/self\.end_by\.get_or_insert\(at\);/_ = at;/'
mutant 'a worker that closed its channel is killed at once' pool/exits.rs 's/must_end_by\(now\.after\(EXIT_GRACE\)\)/must_end_by(now.after(EXIT_GRACE * 0))/'
mutant 'a second close of a channel extends the grace' pool/process.rs 's/self\.end_by\.get_or_insert\(at\);/self.end_by = Some(at);/'
mutant 'the pool does not wake for a closed channel' pool/process.rs 's/at\.into_iter\(\)\.chain\(end_by\)\.min\(\)/at.filter(|_| end_by.is_none_or(|_| true))/'
mutant 'a pause counts against a worker that closed its channel' pool/process.rs 's/self\.end_by = self\.end_by\.map\(\|at\| at\.after\(gap\)\);//'
mutant 'a worker that closed its channel counts as silent' pool/upkeep.rs 's/KillCause::Breach\(Breach::ClosedChannel\)/KillCause::Hang/'
mutant 'a worker that was asked to end counts as breaking the protocol' pool/upkeep.rs 's/\| Stage::Starting \{ \.\. \}\n(\s+if process\.lives_on\(now\))/| Stage::Starting { .. } | Stage::Stopping { .. }\n$1/'

section 'Beacons, and attempts that move'
mutant 'a lost beacon is ignored' pool/exits.rs 's/self\.kill_because\(now, index, KillCause::Beacon, why\);/_ = (now, index, why);/'
mutant 'a lost beacon counts as a hang' pool/exits.rs 's/self\.kill_because\(now, index, KillCause::Beacon, why\)/self.kill_because(now, index, KillCause::Hang, why)/'
mutant 'a lost beacon of a starting process is ignored' pool/exits.rs 's/if self\.slots\.process\(index\)\.is_ending\(\) \{/if self.slots.process(index).is_ending() || self.slots.process(index).is_starting() {/'
mutant 'the lost beacon of an old process is not counted as stale' pool/exits.rs 's/self\.hear\(now, worker\)( else \{ return \};\n\s+if self\.slots\.process\(index\)\.is_ending)/self.slots.find(worker)$1/'
mutant 'no attempt moves' pool/kill.rs 's/&& cause != KillCause::Leaving/\&\& cause == KillCause::Leaving/'
mutant 'a job that must not run twice moves' pool/job.rs 's/!self\.writes_shared_memory\(\) && self\.request\.idempotent &&/!self.writes_shared_memory() \&\&/'
mutant 'an orphaned job moves' pool/job.rs 's/self\.request\.idempotent && !self\.orphaned/self.request.idempotent/'
mutant 'a job that this death may denylist moves' pool/losses.rs 's/ && job\.deaths \+ pending \+ 1 < job\.deaths_max\(&self\.config\)//'
mutant 'deaths that are not explained yet do not count' pool/losses.rs 's/job\.deaths \+ pending \+ 1 </job.deaths + pending * 0 + 1 </'
mutant 'a job on its last attempt moves' pool/losses.rs 's/tries < self\.config\.attempts_max && job/(tries < self.config.attempts_max || true) \&\& job/'
mutant 'a late answer of a moved attempt counts' pool/answers.rs 's/if moved \{/if moved \&\& false {/'
mutant 'a late answer of a moved attempt is not counted as work' pool/answers.rs 's/(service\.worked\(\);\n\s+)(.*?if moved \{.*?\n\s{8}\}\n)/$2        $1/s'
mutant 'a death is no evidence against a moved job' pool/losses.rs 's/let speaks = alone && /let speaks = false \&\& alone \&\& /'
mutant 'a shared death is evidence against every moved job' pool/losses.rs 's/let speaks = alone && /let speaks = (alone || true) \&\& /'
mutant 'the first dispatch moves and the second does not' pool/losses.rs 's/(for sent in outstanding\.second\.iter_mut\(\)\.flat_map\(\|dispatch\| &mut dispatch\.sent\)) \{/$1.take(0) {/'
mutant 'a hang of a moved attempt is shown as a death' pool/losses.rs 's/Self::Hung \{ \.\. \} => AttemptOutcome::Hang/Self::Hung { .. } => AttemptOutcome::WorkerDied/'
mutant 'a shared loss counts as an attempt' pool/losses.rs 's/job\.shards\[shard\]\.tries -= u32::from\(shared\);/_ = shared;/'

section 'Bisection'
mutant 'moved suspects are not bisected' pool/losses.rs 's/self\.split_suspects\(outstanding, loss\.kind\);//'
mutant 'every suspect is its own group' pool/losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.chunks(1)/'
mutant 'suspects are not bisected' pool/losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.chunks(suspects.len().max(1))/'
mutant 'the second half is the larger' pool/losses.rs 's/suspects\.chunks\(suspects\.len\(\)\.div_ceil\(2\)\.max\(1\)\)/suspects.rchunks(suspects.len().div_ceil(2).max(1))/'
mutant 'a bare SIGKILL bisects no suspects' pool/losses.rs 's/if kind\.costs_nothing\(\) \|\| /if kind.costs_nothing() || kind == LossKind::Killed || /'
mutant 'freeing a device bisects its jobs' pool/losses.rs 's/if kind\.costs_nothing\(\) \|\| outstanding/if outstanding/'
mutant 'a dispatch that began as second is not bisected' pool/outstanding.rs 's/\n\s+self\.is_split = false;//'
mutant 'an answer changes the order of suspects' pool/outstanding.rs 's/self\.sent\.remove\(at\)/self.sent.swap_remove_back(at)/'
mutant 'jobs that kept others waiting join each other' pool/feed.rs 's/self\.suspects \+= 1;\n/self.suspects += u32::from(outstanding.is_some_and(|all| *sent == all.front.sent[0]));\n/'

section 'The denylist'
mutant 'the content of a suspect is not asked for' pool/denylist.rs 's/self\.act\(Action::HashContent \{ job: id, work \}\);/_ = work;/'
mutant 'every death asks for the content' pool/denylist.rs 's/if job\.content == Content::Unknown &&/if (job.content == Content::Unknown || job.deaths > 1) \&\&/'
mutant 'a verdict of POISON does not wait' pool/denylist.rs 's/let Content::Known\(content\) = job\.content else \{ return \};/let content = match job.content { Content::Known(content) => content, Content::Requested | Content::Unknown => None };/'
mutant 'a job whose content cannot be read gets no verdict of POISON' pool/denylist.rs 's/let Content::Known\(content\) = job\.content else/let Content::Known(content @ Some(_)) = job.content else/'
mutant 'the denylist stays empty' pool/denylist.rs 's/self\.denylist\.add\(now, content, &job\.request\);//'
mutant 'one content too many is denylisted' pool/denylist.rs 's/self\.order\.len\(\) > self\.max/self.order.len() > self.max + 1/'
mutant 'the denylist forgets the newest content' pool/denylist.rs 's/let oldest = self\.order\.pop_front\(\)/let oldest = self.order.pop_back()/'
mutant 'a content is denylisted twice' pool/denylist.rs 's/newest\.\n\s+self\.remove\(content\);/newest./'
mutant 'a released content is refused' pool.rs 's/match self\.denylist\.remove\(content\) \{/match self.denylist.has(content) {/'
mutant 'one release frees all contents' pool.rs 's/match self\.denylist\.remove\(content\) \{/match self.denylist.has(content) \&\& self.denylist.clear() > 0 {/'
mutant 'the release of all frees none' pool.rs 's/contents taken off the denylist", self\.denylist\.clear\(\)/contents taken off the denylist", 0/'
mutant 'a denylisted content is accepted' pool/submissions.rs 's/filter\(\|&content\| self\.denylist\.has\(content\)\)/filter(|\&content| self.denylist.has(content) \&\& false)/'
mutant 'a refusal of a content is not counted' pool/submissions.rs 's/counters\.refused_poison \+= count/_ = count/'
mutant 'a full pool refuses as BUSY before it checks the denylist' pool/submissions.rs 's/if let Some\(content\) = request\.content.*?\n        \}\n//s; s/return None;/return request.content.filter(|\&content| self.denylist.has(content)).map(Refusal::Poison);/'
mutant 'a batch of another size counts as similar' pool/denylist.rs 's/own\.work == \*work && own\.items == items/own.work == *work/'
mutant 'a denylisted job runs on' pool/denylist.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//'
mutant 'a denylisted job waits on' pool/denylist.rs 's/self\.unqueue\(id\);//'
mutant 'a job of a vanished client is not denylisted' pool/losses.rs 's/if alone && loss\.kind\.is_evidence\(\) && self\.note_death\(id\) \{/if alone \&\& loss.kind.is_evidence() \&\& self.note_death(id) \&\& !self.jobs[id].orphaned {/'

section 'Processes that cannot be killed'
mutant 'a job whose result an unkillable process may write runs again' pool/losses.rs 's/\(may_write, is_ordered\) = \(true, false\)/(may_write, is_ordered) = (false, false)/'
mutant 'an answer is lost with an unkillable process' pool/losses.rs 's/loss\.may_write && job\.writes_shared_memory\(\)/loss.may_write/g'
mutant 'an unkillable process whose beacon was lost is evidence against its job' pool/kill.rs 's/(Self::Beacon \| Self::Breach\(_\) => LossKind::Died \{ evidence: )false/$1true/'
mutant 'shards run on after their job is lost' pool/losses.rs 's/(fn give_up_job\([^\n]+\n\s+)self\.end_early\(now, id, AttemptOutcome::Preempted\);/$1/'
mutant 'shards run on in an old process when no device is left' pool/upkeep.rs 's/self\.end_early\(now, id, AttemptOutcome::Preempted\);//'

section 'What the status shows'
mutant 'dispatches are counted by attempt' pool/dispatch.rs 's/state\.counters\.runs \+= 1;/state.counters.runs += attempts.len() as u64;/'
mutant 'a single attempt counts as joined' pool/dispatch.rs 's/if attempts\.len\(\) > 1 \{ attempts/if attempts.len() > 0 { attempts/'
mutant 'the highest number of waiting jobs is not kept' pool/groups.rs 's/self\.jobs_high\.max\(self\.queue\.jobs\(\)\)/self.queue.jobs()/'
mutant 'the highest number of bytes is not kept' pool/groups.rs 's/self\.bytes_high\.max\(self\.inline_bytes\)/self.inline_bytes/'
mutant 'a standby is shown as ready' pool/process.rs 's/Stage::Standby => WorkerState::Standby/Stage::Standby => WorkerState::Ready/'
mutant 'a device without a process is shown without a generation' pool/rows.rs 's/service\.latest\.unwrap_or\(/None.unwrap_or(/'
mutant 'a device that is being probed is shown as quarantined' pool/rows.rs 's/true => slot\.shown_state\(\),/true if service.state() == ServiceState::Probing => WorkerState::Quarantined,\n            true => slot.shown_state(),/'
mutant 'the first process of a slot is shown as a restart' pool/rows.rs 's/restarts: slot\.restarts\(\)/restarts: slot.restarts().max(1)/'
mutant 'a start is timed from the start of the pool' pool/process.rs 's/let took = now\.since\(self\.started\)/let took = now.since(Timestamp::default())/'
mutant 'the end of a killed process is not timed' pool/slots.rs 's/self\.took_end = process\.killed\(\)[^;]+;//'

section 'The end'
mutant 'a drain forgets running jobs' pool/upkeep.rs 's/if !self\.groups\[group\]\.has_jobs\(\) && /if self.groups[group].queue.is_empty() \&\& /'
mutant 'a drain has no timeout' pool/upkeep.rs 's/\} else if now >= until \{/} else if now >= until \&\& self.slots.iter().count() > 1_000 {/'
mutant 'a pool that drains ignores the command to stop' pool/upkeep.rs 's/if self\.groups\[group\]\.phase == Phase::Left \{\n(\s+return;\n\s+\}\n\s+self\.groups\[group\]\.phase = Phase::Leaving)/if self.groups[group].is_leaving() {\n$1/'
mutant 'the pool leaves before its workers' pool/upkeep.rs 's/slot\.process\(\)\.is_none_or\(Process::is_unkillable\)/slot.process().is_none_or(|own| own.is_unkillable() || own.is_stopping())/'
mutant 'the pool waits for a worker that cannot be killed' pool/upkeep.rs 's/slot\.process\(\)\.is_none_or\(Process::is_unkillable\)/!slot.has_process()/'
mutant 'the pool leaves when one group has left' pool/upkeep.rs 's/self\.groups\.iter\(\)\.all\(\|\(_, state\)\| state\.phase == Phase::Left\)/self.groups.iter().any(|(_, state)| state.phase == Phase::Left)/'
mutant 'a pool that leaves reports all verdicts since the start' pool/upkeep.rs 's/\(self\.before_end\.unwrap_or_default\(\), self\.counters\(\)\)/(Counters::default(), self.counters())/'
mutant 'a death while the pool leaves counts' pool/exits.rs 's/\} else if !is_leaving \{\n(\s+self\.judge)/} else {\n$1/'
mutant 'a start that fails while the pool leaves counts' pool/exits.rs 's/if self\.groups\[worker\.group\]\.is_leaving\(\) \{\n\s+return;\n\s+\}\n(\s+let code)/$1/'
mutant 'slots stay open while the pool leaves' pool/slots.rs 's/(fn close\(&mut self\) \{\n.*?)self\.state = SlotState::Closed;/$1/s'

section 'Attempts beside others'
mutant 'a worker takes one attempt too many beside others' pool/process.rs 's/front\.sent\.len\(\) < attempts_max;/front.sent.len() <= attempts_max;/'
mutant 'others run beside a suspect' pool/process.rs 's/ && front\.may_lead && front\.sent\.len/ \&\& front.sent.len/'
mutant 'a job runs beside others while a device idles' pool/dispatch.rs 's/let for_idle = if some_idle \{/let for_idle = if some_idle \&\& !limits.concurrency.is_concurrent() {/; s/for_idle\.or_else\(\|\| self\.take_beside\(now, group, attempts_max\)\)/self.take_beside(now, group, attempts_max).or_else(|| if some_idle { self.take_for_idle(now, group) } else { None })/; s/if slots\.of_group\(group\)\.any\(\|\(_, slot\)\| idles\(slot\)\) \{/if false \&\& slots.of_group(group).any(|(_, slot)| idles(slot)) {/'
mutant 'a suspect runs beside others' pool/dispatch.rs 's/job\.is_suspect\(\) \|\| job\.joins/job.joins/'
mutant 'a dispatch beside others does not fill the worker' pool/dispatch.rs 's/attempts_max - beside\.map_or\(0, \|front\| front\.sent\.len\(\)\)/attempts_max.min(1)/'
mutant 'an attempt beside others does not go to the least loaded worker' pool/dispatch.rs 's/\(unwanted, front\.sent\.len\(\), index\)/(unwanted, 0, index)/'
mutant 'a job must wait for an idle worker' pool/dispatch.rs 's/for_idle\.or_else\(\|\| self\.take_beside\(now, group, attempts_max\)\)/for_idle.or_else(|| self.take_beside(now, group, attempts_max * 0))/'
mutant 'others run beside a job that must not run twice' pool/dispatch.rs 's/!limits\.concurrency\.is_concurrent\(\) \|\| joins\.is_some\(\)/true/'

section 'One table of devices for all roles'
mutant 'each group numbers its processes' pool/devices.rs 's/self\.generation \+= 1;\n(\s+let worker = WorkerId \{ device: self\.id, group, generation: )self\.generation \}/self.generation += 1;\n        let generation = self.service(group).generation() + 1;\n$1generation }/'
mutant 'a fault takes a device out of service only for programs' pool/driver.rs 's/(fn quarantine_device\(.*?self\.for_each_group\(\|pool, group\| \{\n\s+if )pool/$1group != Group::Grid || pool/s'
mutant 'a fault ends only the workers of one group' pool/driver.rs 's/(fn end_all_workers.*?if )!pool\.groups\[group\]\.is_leaving\(\)/$1group == Group::Grid \&\& !pool.groups[group].is_leaving()/s'
mutant 'a device that was given away is released' pool.rs 's/match \(self\.why_away\(device\), self\.is_out\(device\)\)/match (self.why_away(device).filter(|_| self.is_held(device)), self.is_out(device))/'
mutant 'a release brings a device back only for one group' pool/driver.rs 's/services\.for_each\(\|\(_, service\)\| service\.release\(now\)\)/services.take(1).for_each(|(_, service)| service.release(now))/'
mutant 'a release is refused if only one group is out of service' pool/rows.rs 's/services\(\)\.any\(\|\(_, service\)\| !service\.is_open\(\)\)/services().all(|(_, service)| !service.is_open())/'
mutant 'a release is refused if the group that is out of service rests' pool/rows.rs 's/device\.services\(\)\.any\(\|\(_, service\)\| /device.services().any(|(group, service)| is_busy(\&self.groups, \&self.slots, group) \&\& /'
mutant 'a change of models does not wait for a probe' pool/availability.rs 's/\|\| is_probed\(slot\)//'
mutant 'the loss of a worker with models does not mark its device' pool/devices.rs 's/self\.lost = Some\(\(now, worker\)\);/if worker.group == Group::Grid {\n            self.lost = Some((now, worker));\n        }/'
mutant 'jobs of one group fill the share of a client in the other' pool/submissions.rs 's/self\.jobs\.count_of\(client, group\)/self.jobs.count_of_client(client)/'
mutant 'the model requests of a client that is gone stay' pool/submissions.rs 's/self\.for_each_group\(\|pool, group\| pool\.orphan_jobs\(now, client, group\)\)/self.orphan_jobs(now, client, Group::Grid)/'
mutant 'a worker gets jobs of another group' pool/dispatch.rs 's/let own = slots\.of_group\(group\);/let own = slots.iter().enumerate();/'
mutant 'a standby of another group takes over' pool/starts.rs 's/self\.slots\.of_group_mut\(group\)\.filter\(\|slot\| slot\.device == id\)/self.slots.iter_mut().filter(|slot| slot.device == id)/'
mutant 'a process waits for the memory of another group' pool/starts.rs 's/self\.slots\.of\(slot\.device, slot\.group\)\.any\(Slot::holds_device\)/self.slots.iter().any(|other| other.device == slot.device \&\& other.holds_device())/'
mutant 'a worker with models is shown instead of one for programs' pool/rows.rs 's/\(process\.worker\.group, !process\.serves\(\)\)/(!process.serves(), std::cmp::Reverse(process.worker.group))/'
mutant 'a group has the ready timeout of another' pool/starts.rs 's/Process::new\(now, worker, state\.limits\.ready_timeout\)/Process::new(now, worker, self.config.ready_timeout)/'

section 'What the log shows'
mutant 'a device that goes out of service is not logged' pool/service.rs 's/self\.is_out_logged = true;\n(\s+)Some\(ServiceChange::Out \{ probe_at \}\)/_ = probe_at;\n$1None/'
mutant 'a device that is out of service is logged again' pool/service.rs 's/self\.is_out_logged = true;//'
mutant 'a device that is back is not logged' pool/service.rs 's/Some\(ServiceChange::Back\)/None/'
mutant 'a device that is back is logged again' pool/service.rs 's/self\.is_out_logged = false;//'
mutant 'a probe is logged as a return' pool/service.rs 's/\(ServiceState::Open, true\) => \{/(ServiceState::Open | ServiceState::Probing, true) => {/; s/\(ServiceState::Probing, _\)/(ServiceState::Probing, false)/'
mutant 'the devices of a resting group are logged' pool/upkeep.rs 's/groups\[group\]\.phase == Phase::Serving;/!groups[group].is_leaving();/'
mutant 'a device that went out while its group rested is not logged' pool.rs 's/(self\.groups\[group\]\.phase = Phase::Serving;\n\s+)self\.services_changed = true;/$1/'
mutant 'a misconfigured pool is not reported' pool/upkeep.rs 's/self\.act\(Action::Misconfigured \{ faults \}\);/let _: Vec<String> = faults;/'
mutant 'a misconfigured pool is reported again' pool/upkeep.rs 's/if self\.is_misconfigured && !was_misconfigured \{/if self.is_misconfigured || was_misconfigured {/'
mutant 'a pool counts as misconfigured although one device may serve' pool/upkeep.rs 's/\.all\(\|d\| d\.service\(Group::Grid\)\.is_misconfigured\(\)\)/.any(|d| d.service(Group::Grid).is_misconfigured())/'
mutant 'a death report does not know that the next process has started' pool/death_report.rs 's/Next::Restart\(slot\.next_due\(\)\.map_or\(Duration::ZERO, \|due\| due\.since\(now\)\)\)/slot.next_due().map_or(Next::Nothing, |due| Next::Restart(due.since(now)))/'
mutant 'a death is reported before it is handled' lib.rs 's/(self\.take_in\(now, event\);)/$1\n        self.pool.report(now);/'
mutant 'a kill that was meant to end a worker is reported as a death' pool/death_report.rs 's/let is_expected = killed == Some\(KillReason::Leaving\)\n\s+\|\| /let is_expected = /'
mutant 'attempts that a report does not list are not counted' pool/death_report.rs 's/attempts_more: all\(\)\.count\(\)\.saturating_sub\(ATTEMPTS_LISTED_MAX\)/attempts_more: 0/'
mutant 'a report names a fault that the driver reported before the process started' pool/death_report.rs 's/self\.config\.incident_window\.min\(lived\)/self.config.incident_window/'
mutant 'a report names a worker of another group' pool/death_report.rs 's/let own = \|\| self\.slots\.of\(device, group\);\n(\s+)let serving = own\(\)\.filter_map/_ = group;\n$1let serving = self.slots.iter().filter(|slot| slot.device == device).filter_map/'
mutant 'a kill has the wrong reason' pool/kill.rs 's/(Self::FreeDevice\(Freed::OthersWait\) => KillReason::)OthersWait/$1DeviceOut/'
mutant 'a repeated driver report is logged as new' pool/driver.rs 's/true if report == before => Novelty::Repeated,//'
mutant 'a driver report is about a dead process although the device has another' pool/driver.rs 's/lost\.is_some_and\(is_about\)/lost.is_some() || lost.is_some_and(is_about)/'

section 'Which models a worker has'
mutant 'an idle worker gets a request without having its model' pool/dispatch.rs 's/idle\.filter\(\|&\(_, index\)\| slots\[index\]\.has_for\(job\)\)/idle.filter(|_| true)/'
mutant 'a worker with capacity gets a request without having its model' pool/dispatch.rs 's/open\.iter\(\)\.filter\(\|&&index\| slots\[index\]\.has_for\(job\)\)/open.iter()/'
mutant 'a request joins one for another model' pool/dispatch.rs 's/\n\s+&& slot\.has_for\(job\)(\n\s+&& dispatch\.cost)/$1/'
mutant 'no request runs beside others while a worker without its model idles' pool/dispatch.rs 's/(slot\.idle_since\(now, config\)\.is_some\(\)) && slot\.has_for\(job\)/$1/'
mutant 'an idle worker without the model blocks all other requests' pool/dispatch.rs 's/for_idle\.or_else\(\|\| self\.take_beside\(now, group, attempts_max\)\)/if some_idle { for_idle } else { self.take_beside(now, group, attempts_max) }/'
mutant 'a request that waits for capacity blocks every model' pool/dispatch.rs 's/open\.retain\([^;]+;/open.clear();/'
mutant 'a request that must run alone is overtaken for ever' pool/dispatch.rs 's/open\.retain\([^;]+;//'
mutant 'a request that must run alone is overtaken on the last worker' pool/dispatch.rs 's/open\.retain\(\|&index\| !/open.retain(|\&index| index + 1 == self.slots.iter().count() || !/'
mutant 'no request waits for a starting process' pool/availability.rs 's/!self\.process\(\)\.is_some_and\(Process::was_ready\) \|\| self/self.process().is_some_and(Process::was_ready) \&\& self/'
mutant 'a retry waits for a device without its model' pool/availability.rs 's/!self\.process\(\)\.is_some_and\(Process::was_ready\) \|\| self\.has_for\(job\)/!self.process().is_some_and(Process::was_ready) || self.has_for(job) || true/'
mutant 'a worker without models counts as having all' pool/availability.rs 's/process\.models\.contains\(model\)/(process.models.is_empty() || process.models.contains(model))/'
mutant 'a worker keeps models that it no longer reports' pool/availability.rs 's/process\.models = ready\.map\(\|model\| model\.name\.as_str\(\)\.into\(\)\)\.collect\(\);/process.models.extend(ready.map(|model| std::sync::Arc::<str>::from(model.name.as_str())));/'
mutant 'a worker counts as having a model that it could not load' pool/availability.rs 's/model\.state == ModelState::Ready/model.state == ModelState::Ready || true/'
mutant 'a model is not pinned to the file that was loaded' models/pins.rs 's/plan\.options\.sha256 = Some\([^;]+;/{}/'
mutant 'a worker serves a model from another file' models/pins.rs 's/info\.state = ModelState::Unavailable;//'
mutant 'a model of a change is not pinned' models/pins.rs 's/Some\(\(change\.edition, plan\)\),/None.or(Some((0, plan))),/'
mutant 'the models that a process reports before READY are forgotten' pool/process.rs 's/(self\.introduced = Some\([^;]+;)/$1\n        self.models.clear();/'
mutant 'a report of an old process counts for the new one' pool/availability.rs 's/self\.hear\(now, worker\)/Some(now).and_then(|_| self.slots.iter().position(|slot| slot.device == worker.device \&\& slot.group == worker.group \&\& slot.has_process()))/'
mutant 'a report of models is no sign of life' pool/availability.rs 's/self\.hear\(now, worker\)/self.slots.find(worker).or_else(|| self.hear(now, worker))/'
mutant 'a request whose model no worker has waits on' pool/availability.rs 's/any\(\|\(_, slot\)\| may_have\(slot\)\) \{/any(|(_, slot)| may_have(slot)) || true {/'
mutant 'a retried request is not checked for its model' pool/availability.rs 's/false => newcomers,/false => newcomers.into_iter().filter(|\&id| self.jobs.get(id).is_some_and(|job| job.shards[0].avoid.is_none())).collect::<Vec<_>>(),/'
mutant 'a new request is not checked for its model' pool/availability.rs 's/false => newcomers,/false => Vec::new(),/'
mutant 'a waiting request is not checked again' pool/availability.rs 's/true => self\.groups\[group\]\.queue\.all_jobs\(\)\.into_iter\(\)\.collect\(\)/true => newcomers/'
mutant 'a running request ends with its model' pool/availability.rs 's/\.filter\(\|job\| job\.waits\(\)\)//; s/true => self\.groups\[group\]\.queue\.all_jobs\(\)\.into_iter\(\)\.collect\(\)/true => self.jobs.ids()/'
mutant 'a request does not wait for a starting worker' pool/availability.rs 's/Some\(_\) \| None => Availability::Unknown/Some(own) if own.is_starting() => Availability::None,\n            Some(_) | None => Availability::Unknown/'
mutant 'a request does not wait for the process after a killed one' pool/availability.rs 's/Some\(_\) \| None => Availability::Unknown/Some(own) if own.killed().is_some() => Availability::None,\n            Some(_) | None => Availability::Unknown/'
mutant 'a request does not wait for the process after one that stops' pool/availability.rs 's/Some\(_\) \| None => Availability::Unknown/Some(own) if own.is_stopping() => Availability::None,\n            Some(_) | None => Availability::Unknown/'
mutant 'a request does not wait while memory is reclaimed' pool/availability.rs 's/Some\(_\) \| None => Availability::Unknown/None if slot.reclaiming().is_some() => Availability::None,\n            Some(_) | None => Availability::Unknown/'
mutant 'a request does not wait for a process that is due' pool/availability.rs 's/Some\(_\) \| None => Availability::Unknown/None if slot.due().is_some() => Availability::None,\n            Some(_) | None => Availability::Unknown/'
mutant 'a request waits for a device out of service' pool/availability.rs 's/ \|\| !is_open \|\| / || /'
mutant 'a request does not wait for active workers' pool/availability.rs 's/Availability::Models\(\.\.\) => slot\.has_for\(job\)/Availability::Models(..) => false/'
mutant 'a request waits for a standby beside an active worker' pool/availability.rs 's/_ if self\.slots\.is_served\(slot\.device, slot\.group\) => Availability::None,//'
mutant 'a queued request is not checked for its model' pool.rs 's/if job\.request\.work\.model\(\)\.is_some\(\) \{/if job.request.work.model().is_none() {/'

section 'Jobs that a worker died of alone'
mutant 'a job that killed a worker alone takes others along' pool/job.rs 's/concurrency\.is_concurrent\(\) && self\.deaths > 0/concurrency.is_concurrent() \&\& self.deaths > 100/'
mutant 'a job that killed a worker alone while it waits joins others' pool/dispatch.rs 's/!job\.runs_alone\(limits\.concurrency\)\n\s+&& //'
mutant 'a job that killed a worker alone joins no jobs in any group' pool/job.rs 's/concurrency\.is_concurrent\(\) && self\.deaths > 0/(concurrency.is_concurrent() || true) \&\& self.deaths > 0/'

section 'Withdrawn attempts'
mutant 'the attempts of a client that is gone are withdrawn twice' pool/losses.rs 's/let withdraws = !orphaned && /let withdraws = /'
mutant 'attempts that were cut off are not withdrawn' pool/losses.rs 's/if withdraws \{/if withdraws \&\& false {/'
mutant 'the attempts of a client that is gone are not withdrawn' pool/submissions.rs 's/self\.actions\.extend\(withdrawn\);/drop(withdrawn);/'
mutant 'exclusive workers are not asked to stop' pool/losses.rs 's/let withdraws = !orphaned && /let withdraws = limits.concurrency.is_concurrent() \&\& !orphaned \&\& /'

section 'A role without work'
mutant 'a group that rests starts workers' pool/starts.rs 's/if self\.groups\[slot\.group\]\.has_nothing_to_do\(\) \{/if false {/'
mutant 'a group that rests keeps its workers' pool.rs 's/self\.stop_workers\(now, group\);//'
mutant 'a group that rests has work' pool/groups.rs 's/self\.phase != Phase::Serving\n/self.is_leaving()\n/'
mutant 'a group that leaves has work' pool/groups.rs 's/self\.phase != Phase::Serving\n/self.phase == Phase::Resting\n/'
mutant 'a group that rests never wakes' pool.rs 's/self\.groups\[group\]\.phase = Phase::Serving;//'
mutant 'a group that leaves rests' pool.rs 's/if self\.groups\[group\]\.phase != Phase::Serving \{\n\s+return;\n\s+\}//'
mutant 'a signal that is sent twice stops the pool' pool/upkeep.rs 's/now\.since\(since\) < END_AGAIN_MIN/now.since(since) < Duration::ZERO/'
mutant 'a second signal never stops the pool' pool/upkeep.rs 's/(self\.end_asked_again = true;\n)\s+self\.stop\(now\);/$1/'
mutant 'the first signal stops a replaced pool' pool/upkeep.rs 's/draining_since\.filter\(\|_\| !self\.is_replaced\(\)\)/draining_since/'
mutant 'a group that rests does not drain' pool/upkeep.rs 's/self\.drain_until\(\)\.filter\(\|_\| !self\.groups\[group\]\.is_leaving\(\)\) else/self.drain_until().filter(|_| self.groups[group].phase == Phase::Serving) else/'
mutant 'a pool with a resting group counts as draining' pool.rs 's/self\.groups\.iter\(\)\.any\(\|\(_, group\)\| group\.is_leaving\(\)\)/self.groups.iter().any(|(_, group)| group.has_nothing_to_do())/'
mutant 'the slot of a process that was stopped is lost' pool/exits.rs 's/self\.on_ended_as_asked\(now, index, worker\);//'
mutant 'the slot of a process that was stopped while the group rests is lost' pool/exits.rs 's/(self\.on_ended_as_asked\(now, index, worker\);)/if !self.groups[worker.group].has_nothing_to_do() { $1 }/'
mutant 'no process waits for the memory of one that was stopped' pool/starts.rs 's/self\.slots\[index\]\.open\(now, Some\(Reclaiming \{ worker, until \}\)\);/_ = Reclaiming { worker, until };\n        self.slots[index].open(now, None);/'
mutant 'a process that was stopped counts as dead' pool/exits.rs 's/if ending\.was_asked && !is_leaving \{/if false {/'
mutant 'a process that was killed for a rest counts as dead' pool/exits.rs 's/ \|\| cause == Some\(KillCause::Leaving\),/,/'
mutant 'the end of a killed process is timed from the start of the pool' pool/slots.rs 's/now\.since\(killed\.since\)/now.since(Timestamp::default())/'
mutant 'a device whose process is stopping counts as lost' pool/slots.rs 's/!self\.process\(\)\.is_some_and\(Process::is_unkillable\)/!self.process().is_some_and(|own| own.is_unkillable() || own.is_stopping())/'
mutant 'a process starts beside one that is stopping' pool/slots.rs 's/self\.has_process\(\) \|\| self\.reclaiming\(\)\.is_some\(\)/self.process().is_some_and(|own| !own.is_stopping()) || self.reclaiming().is_some()/'
mutant 'a cancelled probe is never repeated' pool.rs 's/service_mut\(group\)\.cancel_probe\(now\);/service_mut(group);\n                _ = now;/'
mutant 'a cancelled probe counts as passed' pool/service.rs 's/(fn cancel_probe.*?)self\.state = ServiceState::Quarantined \{ probe_at: Some\(now\) \};/$1_ = now;\n            self.state = ServiceState::Open;/s'
mutant 'a rest closes empty slots' pool/slots.rs 's/self\.starts = 0;/self.starts = 0;\n        self.close();/'
mutant 'the first process after a rest counts as a restart' pool/slots.rs 's/self\.starts = 0;//'
mutant 'an unkillable process of a resting group leaves its device in service' pool/losses.rs 's/if !self\.groups\[worker\.group\]\.is_leaving\(\) \{/if !self.groups[worker.group].has_nothing_to_do() {/'
mutant 'a device of a resting group is shown in backoff' pool/rows.rs 's/false if self\.groups\[slot\.group\]\.has_nothing_to_do\(\) =>/false if false =>/'
mutant 'a process starts for a group that has just left' pool/upkeep.rs 's/(self\.end_drain\(now, group\);)(.*?)(self\.start_workers\(now, group\);)/$3$2$1/s'

section 'Changes of models'
mutant 'an unload does not wait for the requests of the model' models/step.rs 's/!wanted\.is_closing \|\| \(context\.is_requested\)\(name\)/!wanted.is_closing/'
mutant 'a model that is being unloaded takes new requests' models.rs 's/self\.wanted\.get\(name\)\.is_some_and\(\|wanted\| !wanted\.is_closing\)/self.wanted.contains_key(name)/'
mutant 'the next process does not load a model that is being unloaded' models.rs 's/self\.wanted\.values\(\)\.map\(/self.wanted.values().filter(|wanted| !wanted.is_closing).map(/'
mutant 'a request for an unknown model is accepted' lib.rs 's/on_submitted\(now, client, request, group\)/on_submitted(now, client, request, group.or(Ok(Group::Grid)))/'
mutant 'a request for an unknown model is refused as draining' pool/submissions.rs 's/\} else \{\n\s+Refusal::Invalid\(why\)/} else {\n                drop(why);\n                Refusal::Draining/'
mutant 'a request for a model that no worker could load is accepted' catalogue.rs 's/Some\(why\) if settled\(group\) =>/Some(why) if settled(group) \&\& false =>/'
mutant 'a request is refused although a worker is about to start' catalogue.rs 's/Some\(why\) if settled\(group\) =>/Some(why) if settled(group) || true =>/'
mutant 'a pool that drains changes its models' lib.rs 's/match self\.pool\.is_draining\(\) \{\n(\s+true => Err\(Refusal::Draining\))/match false {\n$1/'
mutant 'a pool without models keeps its workers' models/step.rs 's/if self\.wanted\.is_empty\(\) \{/if false {/'
mutant 'workers that are about to end get commands' models/step.rs 's/return vec!\[reply, Effect::Rest\];/effects.extend([reply, Effect::Rest]);\n                return effects;/'
mutant 'a worker starts with the models as they are after the event' lib.rs 's/self\.start_workers\(\);\n(\s+self\.advance_models\(now\);)/$1\n        self.start_workers();/'
mutant 'a worker that was told to end keeps its models' pool/upkeep.rs 's/self\.ended\.push\(process\.worker\);//'
mutant 'a worker that was killed keeps its models' pool/kill.rs 's/self\.ended\.push\(worker\);//'
mutant 'a worker that ended keeps its models' pool/exits.rs 's/self\.ended\.push\(worker\);//g'
mutant 'all workers load a new model at once' models/step.rs 's/if self\.is_tried_elsewhere\(edition\) \{/if false {/'
mutant 'a change ends before all workers have made it' models/step.rs 's/else if is_pending \|\| context\.awaits_workers \{/else if context.awaits_workers {/'
mutant 'a change does not wait for a worker that starts' models/step.rs 's/else if is_pending \|\| context\.awaits_workers \{/else if is_pending {/'
mutant 'a failed change goes on' models/step.rs 's/self\.change\.as_ref\(\)\.filter\(\|change\| change\.is_live\(\)\)/self.change.as_ref()/'
mutant 'a failed change is kept' models/step.rs 's/if result\.is_ok\(\) \{/if result.is_ok() || true {/'
mutant 'a complete change is not kept' models/step.rs 's/self\.adopt\(&change\);//'
mutant 'the operator gets no reply to a change' lib.rs 's/let result = result\.map_err\(Refusal::Unable\);\n\s+self\.pool\.act\(Action::Reply \{ client, request, result \}\);/_ = (client, request);/'
mutant 'a worker gets a command again that it could not carry out' models/step.rs 's/if holder\.refused\.contains\(&\(edition, contexts\)\) \{/if false {/'
mutant 'a new change does not clear failed commands' models.rs 's/self\.holders\.values_mut\(\)\.for_each\(\|holder\| holder\.refused\.clear\(\)\);//'
mutant 'two changes are made at a time' models.rs 's/(due: Timestamp,\n    \) -> Result<\(\), String> \{\n)        self\.check_settled\(\)\?;\n/$1/'
mutant 'a change is not checked' models.rs 's/self\.check_command\(&command\)\?;//'
mutant 'one model too many' catalogue.rs 's/>= MODELS_MAX \{/> MODELS_MAX {/'
mutant 'a worker has two commands at a time' models/step.rs 's/filter\(\|\(_, holder\)\| holder\.pending\.is_none\(\)\)/filter(|_| true)/'
mutant 'the last difference is changed first' models/step.rs 's/goal\.into_iter\(\)\.find_map\(/goal.into_iter().rev().find_map(/'
mutant 'contexts are not changed' models/step.rs 's/info\.contexts != contexts\)/info.contexts != contexts \&\& false)/'
mutant 'a worker starts without models' models.rs 's/self\.wanted\.values\(\)\.map\(\|wanted\| wanted\.plan\.clone\(\)\)\.collect\(\)/Vec::new()/'
mutant 'a new model is taken for an old one of the same name' models.rs 's/drop\(holder\.has\.insert\(name, pending\.edition\)\)/drop(holder.has.insert(name, 0))/'
mutant 'a failed unload is repeated' models.rs 's/\(ModelCommand::Unload \{ \.\. \}, _\) => drop\(holder\.has\.remove\(&name\)\),/(ModelCommand::Unload { .. }, Ok(())) => drop(holder.has.remove(\&name)),\n            (ModelCommand::Unload { .. }, Err(_)) => {}/'
mutant 'a worker that dies of a change does not fail it' models.rs 's/self\.failed\(worker, &pending, why\);/drop((pending, why));/'
mutant 'an unchanged report of a model is logged again' models.rs 's/\(&other\.name, other\.state\) == \(&model\.name, model\.state\)/(\&other.name, other.state) == (\&model.name, model.state) \&\& false/'
mutant 'a death during a change of models is evidence against a job' pool/exits.rs 's/let kind = if self\.is_changing \{ kind\.without_evidence\(\) \} else \{ kind \};//'
mutant 'an unkillable hang during a change of models is evidence against a job' pool/losses.rs 's/let kind = if is_changing \{ kind\.without_evidence\(\) \} else \{ kind \};/_ = is_changing;/'
mutant 'a worker counts as changing its models for ever' pool.rs 's/self\.slots\.process_mut\(index\)\.is_changing = false;/_ = index;/'
mutant 'a worker with a command does not count as changing its models' pool.rs 's/self\.slots\.process_mut\(index\)\.is_changing = true;/_ = index;/'

section 'Commands that are not carried out'
mutant 'a command may take for ever' lib.rs 's/self\.catalogue\.late\(now, self\.command_timeout\)/self.catalogue.late(now, self.command_timeout * 1_000)/'
mutant 'a load has no longer time on a worker' models.rs 's/own\.max\(timeout\)/own.min(timeout)/'
mutant 'only one worker that is late with a command is killed' lib.rs 's/while let (Some\(.*?\) = self\.catalogue\.late)/if let $1/'
mutant 'the core does not wake for commands' lib.rs 's/\[self\.pool\.deadline\(\), models, /[self.pool.deadline(), models.filter(|_| false), /'
mutant 'a pause does not excuse a command' lib.rs 's/self\.catalogue\.excuse\(gap\);//'
mutant 'the answer to another command counts' models.rs 's/take_if\(\|pending\| pending\.number == number\)/take_if(|pending| pending.number == number || true)/'
mutant 'an answer to an unknown command is ignored' lib.rs 's/self\.pool\.on_breach\(now, worker, how\);/_ = how;/'
mutant 'a worker that is late with a command is not at fault' pool/kill.rs 's/Self::Breach\(_\) => Some\(FaultCode::Rejected\),//; s/Self::Beacon \| Self::DeviceFault/Self::Beacon | Self::Breach(_) | Self::DeviceFault/'

section 'A successor takes the place of the pool'
mutant 'a client that goes to the successor submits here' pool/submissions.rs 's/if self\.goes_over\(client\) \{/if false {/'
mutant 'a job that must not run twice is given back to the successor' pool/handover.rs 's/&& job\.request\.idempotent\n//'
mutant 'a job that was begun is given back to the successor' pool/handover.rs 's/&& job\.shards\.iter\(\)\.all\(\|shard\| !shard\.was_begun\)//'
mutant 'a job of a client that stays is given back to the successor' pool/handover.rs 's/self\.goes_over\(job\.client\)\n/true\n/'
mutant 'nothing is given back to the successor' pool/handover.rs 's/if self\.may_begin_elsewhere\(&self\.jobs\[id\]\) \{/if false {/'
mutant 'the end of a job that the successor runs is remembered' pool.rs 's/ && !job\.is_given_back && !goes_apart;/ \&\& !goes_apart;/'
mutant 'a client goes to the successor before its last verdict' pool/handover.rs 's/ && self\.jobs\.count_of_client\(client\) == 0//'
mutant 'a client without jobs does not go to the successor' pool/handover.rs 's/(for client in self\.clients\.clone\(\) \{\n\s+)self\.let_go\(client\);/$1_ = client;/'
mutant 'a client that comes too late does not go to the successor' pool/handover.rs 's/(self\.clients\.insert\(client\);\n\s+)self\.let_go\(client\);/$1/'
mutant 'the successor does not hear of live jobs' pool/handover.rs 's/remembered\.chain\(live\)/remembered.chain(live.take(0))/'
mutant 'the successor does not hear of old verdicts' pool/handover.rs 's/remembered\.chain\(live\)/remembered.take(0).chain(live)/'
mutant 'the successor does not hear of new jobs' pool/submissions.rs 's/if self\.has_successor\(\) \{/if false {/'
mutant 'the successor does not hear how jobs end' pool.rs 's/if self\.has_successor\(\) \{/if false {/'
mutant 'the successor hears of the end of a job after its client' pool.rs 's/(        if self\.has_successor\(\) \{\n.*?\n        \}\n)(        self\.actions\.push_back\(Action::Finish[^;]*;\n)/$2$1/s'
mutant 'workers do not wait for connections that stay beside the successor' pool/upkeep.rs 's/ && !self\.awaits_submissions\(\)//'
mutant 'workers wait for connections that are gone beside the successor' pool/handover.rs 's/stay\.remove\(&client\);/_ = stay;/'
mutant 'a successor that fails is told of all jobs for ever' pool/handover.rs 's/\(HandOver::Failed, Replaced::Soon\) => self\.replaced = Replaced::No,/(HandOver::Failed, Replaced::Soon) => {}/'
mutant 'a successor that was told nothing takes over' pool/handover.rs 's/\(HandOver::Done \{ stay \}, Replaced::Soon\)/(HandOver::Done { stay }, _)/'
mutant 'a job that is cut off beside a successor is remembered' pool/upkeep.rs 's/match self\.is_replaced\(\) && self\.jobs\[id\]\.request\.idempotent \{/match false {/'
mutant 'connections that stay beside the successor are refused' pool/submissions.rs 's/ && \(!self\.is_replaced\(\) \|\| state\.is_leaving\(\)\) \{/ {/'
mutant 'connections that stay beside the successor submit without workers' pool/submissions.rs 's/\(!self\.is_replaced\(\) \|\| state\.is_leaving\(\)\)/!self.is_replaced()/'

section 'Upgrades one by one'
mutant 'a process starts on a device that another pool has' pool/starts.rs 's/if !self\.devices\.at\(slot\.device\)\.is_own\(\) \{\n\s+return None;\n\s+\}//'
mutant 'a dispatch waits behind another on a vacated device' pool/dispatch.rs 's/is_own\(slot\)\)\.filter_map/is_own(slot) || true).filter_map/'
mutant 'an attempt runs beside others on a vacated device' pool/dispatch.rs 's/\n\s+&& self\.devices\.at\(slot\.device\)\.is_own\(\)//'
mutant 'an idle worker stays on a vacated device' pool/upkeep.rs 's/self\.stop_vacated\(now, group\);//'
mutant 'a busy worker of a vacated device is asked to end' pool/owners.rs 's/is_busy = \|process: &Process\| matches!\(process\.stage\(\), Stage::Busy\(_\)\)/is_busy = |process: \&Process| matches!(process.stage(), Stage::Busy(_)) \&\& false/'
mutant 'a device is freed while its worker ends' pool/owners.rs 's/&& slot\.holds_device\(\)/\&\& slot.serves()/'
mutant 'a device is freed before its memory is' pool/owners.rs 's/&& slot\.holds_device\(\)/\&\& slot.has_process()/'
mutant 'a vacated device is never freed' pool/upkeep.rs 's/self\.free_vacated\(\);//'
mutant 'a vacated device is freed again and again' pool/owners.rs 's/device\.owner = Owner::Successor;//'
mutant 'a successor that fails keeps its device' pool/handover.rs 's/self\.take_devices_back\(\);//'
mutant 'after a successor that fails there is none one by one' pool/owners.rs 's/(fn take_devices_back.*?)self\.gives_devices = false;/$1/s'
mutant 'the first device is vacated although another serves' pool/owners.rs 's/own\(\)\.find\(serves\)\.or_else/own().find(|device| serves(device) || true).or_else/'
mutant 'no device is vacated in a pool where none serves' pool/owners.rs 's/\.or_else\(\|\| own\(\)\.next\(\)\)//'
mutant 'no device is vacated once the successor serves' pool/upkeep.rs 's/self\.vacate_unwanted\(now\);//'
mutant 'a device is vacated that a job waits for' pool/owners.rs 's/filter\(\|&id\| !is_wanted\(id\)\)/filter(|\&id| !is_wanted(id) || true)/'
mutant 'all devices are vacated before the successor serves' pool/owners.rs 's/if !self\.gives_devices \|\| !self\.is_replaced\(\) \{/if !self.gives_devices {/'
mutant 'the core does not wake to vacate devices' pool/upkeep.rs 's/let vacates = \[self\.vacates_at\]/let vacates = [self.vacates_at.filter(|_| false)]/'
mutant 'a job is lost whose device the successor has' pool/handover.rs 's/match self\.is_served_elsewhere\(self\.jobs\[id\]\.group\) \{/match false {/'
mutant 'a job waits for a device that the successor has' pool/starts.rs 's/may\(device\.id\) && !self\.is_given_away\(device\.id\)/may(device.id)/'
mutant 'connections stay although no worker does' pool/handover.rs 's/match self\.gives_devices \{/match false {/'
mutant 'the gateway hears of jobs that are given back' pool/handover.rs 's/if quiet\.contains\(&client\)/if quiet.contains(\&client) \&\& false/'
mutant 'a probe goes on on a vacated device' pool/owners.rs 's/self\.devices\.at_mut\(id\)\.service_mut\(slot\.group\)\.cancel_probe\(now\);/_ = now;/'
mutant 'a device stays held although it is free' pool/owners.rs 's/held\.filter\(named\)\.for_each/held.filter(named).take(0).for_each/'
mutant 'all devices are free with the first' pool/owners.rs 's/id\.is_none_or\(\|id\| device\.id == id\)/id.is_none_or(|id| device.id == id || true)/'
mutant 'devices stay held after the end of the pool before' lib.rs 's/self\.pool\.on_freed\(None\);//'
mutant 'a pool is misconfigured before it has a device' pool/upkeep.rs 's/tried\(\)\.next\(\)\.is_some\(\) && //'
mutant 'the status does not say which pool has a device' pool/rows.rs 's/device\s*\.why_away\(\)/device.why_away().filter(|_| false)/'

section 'Groups of models'
mutant 'a model that is being loaded does not count' models.rs 's/self\.wanted\.len\(\) \+ usize::from\(loads\)/self.wanted.len() + usize::from(loads \&\& false)/'
mutant 'a group gives its place away before its worker is gone' pool/groups.rs 's/\n\s+&& self\.slots\.of_group\(group\)\.all\(\|\(_, slot\)\| !slot\.holds_device\(\)\)//'
mutant 'a group with work gives its place away' pool/groups.rs 's/\n\s+&& state\.phase == Phase::Resting//'
mutant 'a group never gives its place away' pool/groups.rs 's/let state = &self\.groups\[group\];\n\s+group\.role\(\) == Role::Infer/let state = \&self.groups[group];\n        group.role() == Role::Grid/'
mutant 'a new group has the backoff of the one before' pool/slots.rs 's/self\.all\.splice\(old, new\);/if old.len() != new.len() { self.all.splice(old, new); }/'
mutant 'a new group has the quarantines of the one before' pool/groups.rs 's/device\.renew_service\(group, is_used\);/if vacant.is_none() { device.renew_service(group, is_used); }/'
mutant 'a new group is on devices that are out of service' pool/service.rs 's/Self \{ last_fault, state, rule, probes: other\.probes, \.\.Self::new\(\) \}/{ _ = (last_fault, state, rule); Self::new() }/'
mutant 'a group that comes back is judged by what it was' catalogue.rs 's/\n\s+&& !pool\.is_vacant\(group\)//'
mutant 'a group does not come back to its own number' pool/groups.rs 's/min_by_key\(\|\(_, state\)\| \*state\.name != \*name\)/min_by_key(|(_, state)| *state.name == *name)/'
mutant 'a new group has the spent budgets of the one before' pool/groups.rs 's/\(state\.name, state\.kills\) = \(name\.into\(\), KillBudget::default\(\)\);/state.name = name.into();/'
mutant 'the log does not say that a new group lacks a device' pool/groups.rs 's/self\.services_changed = true;\n//'
mutant 'the sums of a group begin anew with its next models' pool/service.rs 's/self\.quarantines \+= other\.quarantines;/_ = other;/'
mutant 'bytes of other groups do not count' pool/groups.rs 's/self\.groups_of\(role\)\.map\(\|state\| state\.inline_bytes\)\.sum\(\)/self.groups_of(role).map(|state| state.inline_bytes).max().unwrap_or(0)/'
mutant 'bytes of a principal in other groups do not count' pool/groups.rs 's/(filter_map\(\|state\| Some\(state\.live\.get\(principal\)\?\.inline_bytes\)\))\.sum\(\)/$1.max().unwrap_or(0)/'
mutant 'a change in one group is refused beside one in another' catalogue.rs 's/self\.groups\.entry\(group\)\.or_default\(\)\.begin/self.groups.values().try_for_each(|models| models.plans().map(drop))?;\n        self.groups.entry(group).or_default().begin/'
mutant 'all models share one group' catalogue.rs 's/\*\*pool\.group_name\(group\) == \*plan\.group\(\)/!plan.group().is_empty()/'

section 'Which groups are looked at'
mutant 'after an answer, no group is looked at' pool/attention.rs 's/self\.touch\(worker\.group\);/_ = worker;/'
mutant 'a group is not looked at for a job that waits' pool.rs 's/self\.attention\[job\.group\]\.touch\(\);//'
mutant 'a group is not looked at after the end of a job' pool.rs 's/self\.touch\(job\.group\);\n//'
mutant 'a group is not looked at when its time has come' pool/attention.rs 's/for_each\(Attention::touch\)/for_each(drop)/'
mutant 'a group is not looked at after a kill' pool/kill.rs 's/self\.touch\(worker\.group\);\n//'
mutant 'a spent budget holds its principal in another group' pool/upkeep.rs 's/let kills = &mut self\.groups\[group\]\.kills;/let kills = \&mut self.groups[gridpool_protocol::ids::Group::Grid].kills;/'
mutant 'a group that was looked at wakes as before' pool/attention.rs 's/\(self\.is_touched, self\.is_stale\) = \(true, true\);/self.is_touched = true;/'
mutant 'a group that begins to rest is not looked at' pool.rs 's/self\.touch\(group\);\n(\s+self\.groups\[group\]\.phase = Phase::Resting)/$1/'
mutant 'a rare event brings no group to be looked at' pool/attention.rs 's/\) => self\.touch_all\(\),/) => {}/'
mutant 'models with news are not looked at' catalogue.rs 's/self\.busy\.insert\(worker\.group\);//'
mutant 'models with a change are not looked at' catalogue.rs 's/self\.busy\.insert\(group\);\n//'
mutant 'models with a pending command are not looked at' models.rs 's/ && self\.holders\.values\(\)\.all\(\|holder\| holder\.pending\.is_none\(\)\)//'

section 'Versions'
mutant 'a name goes to its lowest version' catalogue/versions.rs 's/None => versions\.max_by_key\(/None => versions.min_by_key(/'
mutant 'a request follows its name' lib.rs 's/\*name = full_name;/_ = full_name;/'
mutant 'a version that is named is not the one that runs' catalogue/versions.rs 's/Some\(version\) => versions\.find\(\|open\| open\.version == version\)/Some(_) => versions.max_by_key(|open| open.version)/'
mutant 'the version before stays after a swap' catalogue/versions.rs 's/others\(\)\.filter\(\|_\| !keep && serves == version\)/others().filter(|_| keep \&\& serves == version)/'
mutant 'a version that should stay goes' catalogue/versions.rs 's/others\(\)\.filter\(\|_\| !keep && serves == version\)/others().filter(|_| serves == version || keep)/'
mutant 'a version below the highest takes over' catalogue/versions.rs 's/others\(\)\.filter\(\|_\| !keep && serves == version\)/others().filter(|_| !keep)/'
mutant 'a swap ends before the version before is unloaded' catalogue/versions.rs 's/if \*left > 0 \{/if *left > 1_000 {/'
mutant 'a swap is done although the load failed' catalogue/versions.rs 's/return Some\(Err\(why\)\);/return Some(Ok(why));/'
mutant 'a name is changed twice at a time' catalogue.rs 's/self\.check_unchanged\(asked\.name\)\?;//'
mutant 'a new version has the number of the last' catalogue/versions.rs 's/\|last\| last\.checked_add\(1\)/|last| last.checked_add(0)/'
mutant 'an unload of a name leaves its other versions' catalogue.rs 's/\[\(_, group, only\)\] => \{/[(_, group, only), ..] => {/'
mutant 'all versions are unloaded beside another change' catalogue.rs 's/own => own\.iter\(\)\.try_for_each\(\|\(_, group, _\)\| self\.groups\[group\]\.check_settled\(\)\)\?/_ => {}/'
mutant 'versions are unloaded in the order of their names' catalogue/versions.rs 's/all\.sort_unstable\(\);/all.sort_unstable_by(|(.., one), (.., other)| one.cmp(other));/'
mutant 'an unload is done while a worker that is busy has the model' models/step.rs 's/\|\| is_pending \|\| is_there \{/|| is_pending || (is_there \&\& false) {/'
mutant 'an unload beside another change is lost' models.rs 's/Some\(_\) => self\.unloads\.push_back\(\(client, request, name\)\),/Some(_) => drop((client, request, name)),/'
mutant 'an unload that waits is never begun' models/step.rs 's/if let Some\(\(client, request, name\)\) = self\.unloads\.pop_front\(\) \{\n(.*?)\} else if self\.wanted\.is_empty\(\) \{/if self.wanted.is_empty() {/s'
mutant 'a version that goes accepts requests until the change before ends' models.rs 's/(pub\(crate\) fn unload\(.*?\{\n)        self\.close\(&name\);\n/$1/s'
mutant 'the content of another version is asked for' views.rs 's/Some\(name\) => Work::Model \{ name: name\.into\(\) \},/Some(_) => request.work.clone(),/'

section 'Loads'
mutant 'a load has no deadline' models.rs 's/due: change\.loads\(\)\.then_some\(due\)/due: change.loads().then_some(due).filter(|_| false)/'
mutant 'a late load goes on' models/loads.rs 's/due\.is_none_or\(\|due\| now < due\)/due.is_none_or(|due| now < due || true)/'
mutant 'a pause does not excuse a load' models.rs 's/\*due = due\.after\(gap\);/_ = due;/'
mutant 'the core does not wake for a late load' models.rs 's/command\.into_iter\(\)\.chain\(load\)\.min\(\)/command.or(load.filter(|_| false))/'
mutant 'a load that an unload ends is no reply to the unload' catalogue.rs 's/self\.give_up_load\(asked\)$/self.give_up_load(asked).filter(|_| false)/m'
mutant 'an unload ends the load of another version' catalogue/loads.rs 's/split\(full_name\)\.1 == version\)/split(full_name).1 == version || true)/'
mutant 'the load of a client that is gone goes on' lib.rs 's/self\.catalogue\.on_client_gone\(client\);//'
mutant 'a client that is gone ends the loads of others' models/loads.rs 's/&& change\.client == client/\&\& (change.client == client || true)/'
mutant 'a load fails with the one before it that was given up' models.rs 's/ && !is_former \{/ \&\& (!is_former || true) {/'
mutant 'a load that is given up is done' models/step.rs 's/(else if let Some\(why\) = &change\.given_up) \{/$1\.as_ref().filter(|_| false) {/'
mutant 'a required model that cannot be loaded is not reported' catalogue/loads.rs 's/Some\(missing\) => self\.pool\.act\(Action::ModelMissing\(missing\)\),/Some(missing) => drop(missing),/'
mutant 'a required model is reported while a device may still load it' catalogue/loads.rs 's/None if may_come => Load::UnderWay,//'
mutant 'a required model may fail on one device' catalogue/loads.rs 's/match refused \{/match refused.filter(|_| !is_ready) {/'
mutant 'a required model is reported by a pool that drains' catalogue/loads.rs 's/if self\.pool\.is_draining\(\) \{(\s+return self\.catalogue\.required\.clear)/if false {$1/'
mutant 'a required model that was unloaded is reported' catalogue/loads.rs 's/else \{\s+return Load::Done;/else {\n            return Load::Failed { why: String::new(), elsewhere: false };/'
mutant 'a required model is asked for after it was loaded' catalogue/loads.rs 's/Load::Done => false,/Load::Done => true,/'

section 'Placement'
mutant 'the memory of models is not planned' catalogue.rs 's/self\.check_memory\(plan, pool\)\?;//'
mutant 'a model that is being loaded takes no memory' models/loads.rs 's/\.map\(\|wanted\| &wanted\.plan\)\.chain\(loaded\)/.map(|wanted| \&wanted.plan).chain(loaded.filter(|_| false))/'
mutant 'a model takes memory of devices that it is not on' catalogue/memory.rs 's/filter\(\|&device\| is_on\(plan, device\)\)/filter(|_| true)/'
mutant 'other models take memory of devices that they are not on' catalogue/memory.rs 's/plans_now\(\)\.filter\(\|plan\| is_on\(plan, device\)\)/plans_now().filter(|plan| is_on(plan, device) || true)/'
mutant 'standbys take no memory' catalogue/memory.rs 's/own\.saturating_mul\(pool\.model_processes\(\)\.into\(\)\)/own/'
mutant 'a model is placed where the least is left' placing.rs 's/map\(Candidate::left\)\.max\(\)/map(Candidate::left).min()/'
mutant 'models are not placed in turn' placing.rs 's/\(own\.models, own\.device\)/own.device/'
mutant 'a model is placed as if loads took no memory' placing.rs 's/used\.max\(self\.held\)/used/'
mutant 'a model is placed by less than a GiB' placing.rs 's/i128::from\(ALIKE_BYTES\)/1/'
mutant 'a model is placed on devices that it does not name' placing.rs 's/candidates\.retain\(\|own\| is_on\(plan, own\.device\)\);//'
mutant 'a model that was placed elsewhere waits for workers that end' catalogue.rs 's/models\.len\(\) > 0 \|\| pool\.placement\(group\) == wanted/true/'
mutant 'a model that fills the memory exactly is refused' catalogue/memory.rs 's/saturating_add\(wants\) > max/saturating_add(wants) >= max/'
mutant 'a model is on all devices whatever it names' pool/slots.rs 's/filter\(\|slot\| placement\.is_none_or\(\|placement\| placement\.has\(slot\.device\)\)\)/filter(|_| placement.is_none_or(|_| true))/'
mutant 'a group keeps the devices of its former models' pool/groups.rs 's/self\.slots\.place\(group, &self\.devices, placement, self\.config\.standbys\);/if vacant.is_none() { self.slots.place(group, \&self.devices, placement, self.config.standbys); }/'
mutant 'the slots behind a group that is placed anew are lost' pool/slots.rs 's/range\.start >= old\.end\)/range.start > old.end)/'
mutant 'a fault of a device is one of groups that are not on it' pool/driver.rs 's/ \|\| !pool\.slots\.are_on\(id, group\)//'
mutant 'a group that is not on a device is out of service there' pool/devices.rs 's/false => Service::new\(\),/false => Service::beside(\&self.services[Group::Grid]),/'
mutant 'a model may name a device that the pool does not have' catalogue.rs 's/and_then\(\|own\| pool\.why_not_placed\(own\)\)/and_then(|own| pool.why_not_placed(own).filter(|_| false))/'

section 'Capsules'
mutant 'a death of its work has no capsule' pool/capsules.rs 's/LossKind::Died \{ \.\. \} \| LossKind::Hung \{ \.\. \} => \|_\| true/LossKind::Hung { .. } => |_| true,\n            LossKind::Died { .. } => |_| false/'
mutant 'a hang has no capsule' pool/capsules.rs 's/LossKind::Died \{ \.\. \} \| LossKind::Hung \{ \.\. \} => \|_\| true/LossKind::Died { .. } => |_| true,\n            LossKind::Hung { .. } => |_| false/'
mutant 'an outside kill has a capsule' pool/capsules.rs 's/LossKind::Freed \| LossKind::Killed \| LossKind::Unbegun/LossKind::Killed => |_| true,\n            LossKind::Freed | LossKind::Unbegun/'
mutant 'a worker that is freed has a capsule' pool/capsules.rs 's/LossKind::Freed \| LossKind::Killed \| LossKind::Unbegun/LossKind::Freed => |_| true,\n            LossKind::Killed | LossKind::Unbegun/'
mutant 'a capsule blames those beside an attempt that ran on' pool/capsules.rs 's/LossKind::RanOn => Sent::is_cut_off/LossKind::RanOn => |_| true/'
mutant 'an attempt that ran on has no capsule' pool/kill.rs 's/Self::FreeDevice\(Freed::Ended\(_\)\) => LossKind::RanOn/Self::FreeDevice(Freed::Ended(_)) => LossKind::Freed/'
mutant 'a kill for others has a capsule' pool/kill.rs 's/Freed::DeviceOut \| Freed::OthersWait\) \| Self::Leaving => \{\n\s+LossKind::Freed/Freed::DeviceOut | Freed::OthersWait) | Self::Leaving => {\n                LossKind::RanOn/'
mutant 'a capsule is asked for twice' pool/capsules.rs 's/(self\.act\(Action::Capsule \{ worker, name: Arc::clone\(&name\), )attempts \}\);/$1attempts: attempts.clone() });\n        $1attempts });/'
mutant 'a capsule has the first suspect alone' pool/capsules.rs 's/suspects\.map\(\|sent\| sent\.attempt\)\.collect\(\)/suspects.map(|sent| sent.attempt).take(1).collect()/'
mutant 'a capsule without a suspect' pool/capsules.rs 's/if attempts\.is_empty\(\)/if false/'
mutant 'a hang that was moved names no capsule' pool/job.rs 's/matches!\(attempt\.outcome, AttemptOutcome::WorkerDied \| AttemptOutcome::Hang\)/attempt.outcome == AttemptOutcome::WorkerDied/'
mutant 'the capsules of a device have one name' pool/capsules.rs 's/own\.device, own\.generation\)/own.device, 1)/'

section 'Helpers'
mutant 'a helper that has ended is not started again' helpers.rs 's/Stage::Running \{ since, \.\. \} => \(since, true\)/Stage::Running { since, .. } => (since, false)/'
mutant 'a helper is started again at once' helpers.rs 's/Stage::Waiting \{ until: self\.now\.after\(wait\) \}/Stage::Waiting { until: self.now.after(wait * 0) }/'
mutant 'every start of a helper waits as long as the first' helpers.rs 's/self\.backoff = wait\.saturating_mul\(2\)\.min\(self\.limits\.backoff_max\);//'
mutant 'the backoff of a helper has no cap' helpers.rs 's/\.min\(self\.limits\.backoff_max\)//'
mutant 'a helper that lived for long keeps its backoff' helpers.rs 's/if lived >= self\.limits\.healthy \{/if false {/'
mutant 'a helper that lived for a moment is healthy' helpers.rs 's/if lived >= self\.limits\.healthy \{/if true {/'
mutant 'a silent helper is left alone' helpers.rs 's/self\.now\.after\(self\.state\.limits\.silence\)/self.now.after(self.state.limits.silence * 100)/'
mutant 'a helper that was never heard is left alone' helpers.rs 's/self\.now\.after\(self\.state\.limits\.start\)/self.now.after(self.state.limits.start * 100)/'
mutant 'a sign of life of a helper is ignored' helpers.rs 's/\*silent_at = self\.now\.after\(self\.state\.limits\.silence\);/_ = silent_at;/'
mutant 'a helper that could stop is killed' helpers.rs 's/Some\(grace\)\) => \{/Some(grace)) if grace.is_zero() => {/; s/\(&mut Stage::Running \{ since, \.\. \}, None\)/(\&mut Stage::Running { since, .. }, _)/'
mutant 'a helper that does not stop is left alone' helpers.rs 's/let kill_at = self\.now\.after\(grace\);/let kill_at = self.now.after(grace * 100);/'
mutant 'a helper that is wanted again while it stops is not started' helpers.rs 's/Stage::Killed \{ is_wanted, \.\. \} \| Stage::Stopping \{ is_wanted, \.\. \} => \{\n(\s+\*is_wanted = true;)/Stage::Killed { is_wanted, .. } => {\n$1/; s/Stage::Running \{ \.\. \} \| Stage::Waiting \{ \.\. \} => \{\}/Stage::Running { .. } | Stage::Stopping { .. } | Stage::Waiting { .. } => {}/'
mutant 'a helper that is not wanted is started again' helpers.rs 's/\*is_wanted = false;/_ = is_wanted;/'
mutant 'a waiting helper starts although it is not wanted' helpers.rs 's/\(stage @ Stage::Waiting \{ \.\. \}, _\) => \*stage = Stage::Off,/(Stage::Waiting { .. }, _) => {}/'
mutant 'a helper starts beside one that cannot be killed' helpers.rs 's/\*stuck_at = None;\n(\s+)(\(self\.act\)\(Action::Note\(Note::HelperStuck \{ helper: self\.helper \}\)\);)/_ = stuck_at;\n$1$2\n$1self.start();/'
mutant 'a helper that cannot be killed is logged again' helpers.rs 's/\*stuck_at = None;/*stuck_at = Some(self.now.after(self.state.limits.kill));/'
mutant 'a helper that ended after it was stuck is not logged' helpers.rs 's/if stuck_at\.is_none\(\) \{/if false {/'
mutant 'a helper that waits longer is not logged' helpers.rs 's/if wait > self\.state\.limits\.backoff_min \{/if false {/'
mutant 'a lost helper is left alone' helpers.rs 's/self\.kill\(since, reason, true\);/_ = (since, reason);/'
mutant 'a pause does not excuse a helper' lib.rs 's/self\.helpers\.excuse\(gap\);//'
mutant 'the core does not wake for helpers' lib.rs 's/self\.helpers\.deadline\(\)\]/self.helpers.deadline().filter(|_| false)]/'
mutant 'a helper that was never heard is up' helpers.rs 's/self\.state\.starts \+= 1;/self.state.starts += 1;\n        self.state.is_up = true;/'
mutant 'a helper that is killed is up' helpers.rs 's/(Stage::Killed \{ since, stuck_at, is_wanted \};\n\s+)self\.state\.is_up = false;/$1/'
mutant 'the first process of a helper is a restart' helpers.rs 's/restarts: state\.starts\.saturating_sub\(1\)/restarts: state.starts/'
mutant 'a helper that waits is off' helpers.rs 's/is_off: state\.stage == Stage::Off/is_off: state.stage == Stage::Off || matches!(state.stage, Stage::Waiting { .. })/'
mutant 'a helper that is killed has time to stop' helpers.rs 's/is_stopping: matches!\(state\.stage, Stage::Stopping \{ \.\. \}\)/is_stopping: matches!(state.stage, Stage::Stopping { .. } | Stage::Killed { .. })/'

rm -f "$work"/row.*
# What is tried is the tree as it is now, whatever becomes of it meanwhile.
rm -rf "$work/tree"
mkdir -p "$work/tree/supervisor" "$work/tree/tests"
cp -r "$root"/Cargo.{lock,toml} "$root/protocol" "$work/tree"
cp -r "$root/supervisor/core" "$work/tree/supervisor"
cp -r "$root/tests/sim" "$work/tree/tests"
kept_in=$work/known/$(cd "$work/tree" && {
    rustc -V
    declare -f plant simulate
    find Cargo.lock protocol/src supervisor/core tests/sim -name '*.rs' -o -name 'Cargo.*' -type f | sort | xargs sha256sum
} | sha256sum | cut -c1-32)
mkdir -p "$kept_in"
find "$work/known" -mindepth 1 -maxdepth 1 ! -path "$kept_in" -exec rm -rf {} +
for ((job = 0; job < jobs; job++)); do
    prepare "$work/$job/gridpool"
done
if [[ $seeds == 0 ]]; then
    try_all | { ! grep 'NOT PLANTED'; }
    exit
fi
none=$(known none)
if [[ ! -f $none ]]; then
    TIMEFORMAT=%0U
    { time simulate "$work/0/gridpool" >/dev/null; } 2>"$none.new" ||
        { echo "the simulator fails without any bug planted" >&2; exit 1; }
    # Twice what it takes, with its build, to run all seeds without a bug.
    echo $((2 * $(<"$none.new"))) >"$none"
fi
try_all
# count WORD: rows that begin with it.
count() { { grep -l "^$1" "$work"/row.* || true; } | wc -l; }
missed=$(count MISSED) broken=$(count NOT) caught=$((${#names[@]} - missed - broken))
printf '\n%d of %d caught, %d missed, %d could not be tried\n' "$caught" "${#names[@]}" "$missed" "$broken"
[[ -n $only ]] || write_document >"$root/tests/sim/MUTANTS.md"
[[ $missed == 0 && $broken == 0 ]]
