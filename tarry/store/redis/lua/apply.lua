-- Makes changes of jobs: the first half of `exchange`. `tarry.store.redis.changes` packs them; changes that differ only
-- in their job share one description.

-- Bits of a description: which fields it changes besides the state.
lib.CHANGES_DUE, lib.CHANGES_RANK, lib.CHANGES_EXPIRES = 1, 2, 4
lib.CHANGES_HOLD, lib.CHANGES_QUEUE, lib.CHANGES_BODY, lib.CHANGES_ATTEMPTS = 8, 16, 32, 64
-- And that its attempt keeps its places under limits.
lib.KEEPS_PLACES = 128
-- And that the job must still have the times that were seen.
lib.HAS_SEEN_TIMES = 256
-- And that the rates of its attempt are to count more starts, or fewer.
lib.CORRECTS_RATES = 512
-- What the changes come to: outcomes, by id and text in turn; jobs that are forgotten, or run no more; how many of each
-- owner run no more; jobs that end alike, in groups; what an entry says of its job.
lib.new_outcomes, lib.gone_ids, lib.ended_ids = {}, {}, {}
lib.freed_counts, lib.ending_groups, lib.plain_jobs, lib.alike_jobs = {}, {}, {}, {}

-- Reads a description. quick: it ends an attempt for good and changes nothing else.
function lib.parse_change(text)
  local was, to, epoch, flags, modified, keep_until, length = lib.parse('>BBc4BHc8I4', text)
  local at = 22 + length
  local change = {
    was = was, to = to, epoch = epoch, keep_until = keep_until, modified = modified, fields = lib.sub(text, 22, at - 1),
    start = string.char(to) .. epoch, flags = string.char(flags), with_order = string.char(flags + 1), note = 0,
    quick = was == lib.RUNNING and to >= lib.DONE and modified == 0, endings = {},
  }
  change.outcome = change.start .. change.flags .. change.fields
  if flags >= 16 then change.note = lib.parse('>I4', text, lib.FIXED_SIZES[flags - 16] + 7) end
  local function take(size)
    at = at + size
    return lib.sub(text, at - size, at - 1)
  end
  if lib.has_flag(modified, lib.CHANGES_DUE) then change.due = take(8) end
  if lib.has_flag(modified, lib.CHANGES_RANK) then
    change.claim_order = take(6)
    if change.claim_order == '\128\0\0\0\0\0' then change.claim_order = '' end
  end
  if lib.has_flag(modified, lib.CHANGES_EXPIRES) then change.expires = take(8) end
  if lib.has_flag(modified, lib.CHANGES_HOLD) then change.key_held_until = take(8) end
  if lib.has_flag(modified, lib.CHANGES_QUEUE) then change.queue = take(lib.parse('>I2', take(2))) end
  if lib.has_flag(modified, lib.CHANGES_BODY) then change.body = take(lib.parse('>I4', take(4))) end
  if lib.has_flag(modified, lib.CHANGES_ATTEMPTS) then change.attempts = take(lib.parse('>I4', take(4))) end
  if lib.has_flag(modified, lib.HAS_SEEN_TIMES) then change.seen_due, change.seen_expires = take(8), take(8) end
  if lib.has_flag(modified, lib.CORRECTS_RATES) then change.correction = lib.parse('>i8', take(8)) end
  change.owner, change.keeps = lib.sub(text, at), lib.has_flag(modified, lib.KEEPS_PLACES)
  return change
end

function lib.stop_running(id, owner)
  lib.ended_ids[#lib.ended_ids + 1] = id
  lib.freed_counts[owner] = (lib.freed_counts[owner] or 0) + 1
end

-- The record as the change makes it; its tail is given.
function lib.build_record(change, due, claim_order, tail)
  if claim_order == '' then return change.start .. due .. change.flags .. change.fields .. tail end
  return change.start .. due .. change.with_order .. claim_order .. change.fields .. tail
end

-- tail: of the job; of a plain one it need not have all.
function lib.forget(id, tail)
  lib.each_label(lib.remove_from_line, tail, id)
  lib.gone_ids[#lib.gone_ids + 1] = id
  lib.remove_from_line(lib.IDS, id)
end

-- What is counted of plain jobs of one queue and task that end alike.
function lib.ending_group(change, names)
  local queue = lib.split_names(names)
  local line = change.to ~= lib.GONE and lib.get_list(lib.line_adds, lib.finished_line(queue))
  local common = {
    line = line, queue = queue, names = names, to = change.to, keep_until = change.keep_until, count = 0, before = 0,
    after = 0,
  }
  change.endings[names] = common
  lib.ending_groups[#lib.ending_groups + 1] = common
  return common
end

-- What an entry of `run` says: the lane of its job, and as `alike` the rest; and how many with this entry have ended.
-- Many that began together have the same entry.
function lib.running_as(entry)
  local first, lane, last = lib.cut_entry(entry)
  local text = lane and first .. last or entry
  local running = {alike = lib.alike_jobs[text] or lib.running_alike(text, entry), lane = lane, ended = 0}
  lib.plain_jobs[entry] = running
  return running
end

-- The attempt's epoch and owner, names (false: nothing) and size of its job. text: an entry without its lane.
function lib.running_alike(text, entry)
  local names, size, _, at = lib.parse_entry(entry)
  local alike = {epoch = lib.sub(entry, 1, 4), owner = lib.sub(entry, at), names = names, size = size, by = false}
  lib.alike_jobs[text] = alike
  return alike
end

-- As `running_as`, of another job that has no key and no note of an earlier attempt: the end of this one leaves its
-- record alone, too.
function lib.keyless_job_of(id)
  local record = lib.call('HGET', lib.JOBS, id)
  local at, note = lib.tail_position(record)
  local tail = lib.parse_tail(record, at)
  if tail.key or note > 0 then return false end
  tail.size = lib.tail_size(tail, 0)
  return tail
end

-- Ends the attempt of such a job for good: by far the most changes are this one. Mostly the record is not even read.
function lib.finish(change, id, of)
  local common = change.endings[of.names] or lib.ending_group(change, of.names)
  common.count, common.before = common.count + 1, common.before + of.size
  lib.stop_running(id, change.owner)
  if change.to == lib.GONE then return lib.forget(id, of) end
  local line, count = common.line, #lib.new_outcomes
  line[#line + 1] = change.keep_until .. id
  common.after = common.after + of.size + change.note
  lib.new_outcomes[count + 1], lib.new_outcomes[count + 2] = id, change.outcome
end

function lib.tally_endings()
  for _, common in ipairs(lib.ending_groups) do
    lib.tally(lib.RUNNING, common.names, -common.count, -common.before)
    if common.to ~= lib.GONE then
      lib.tally(common.to, common.names, common.count, common.after)
      lib.add_weight(common.queue, common.keep_until, common.after)
    end
  end
end

function lib.modify_tail(change, old)
  local tail = {}
  for name, value in pairs(old) do tail[name] = value end
  tail.expires, tail.key_held_until = change.expires or tail.expires, change.key_held_until or tail.key_held_until
  tail.queue, tail.body = change.queue or tail.queue, change.body or tail.body
  tail.attempts = change.attempts or tail.attempts
  tail.names = lib.join_names(tail.queue, tail.task)
  return tail
end

function lib.leave_state(state, id, record, tail, entry)
  local size = lib.tail_size(tail, (select(2, lib.tail_position(record))))
  lib.tally(state, tail.names, -1, -size)
  if state == lib.RUNNING then return lib.stop_running(id, lib.owner_of(entry)) end
  if state >= lib.DONE and state ~= lib.BLOCKED then
    lib.add_weight(tail.queue, lib.keep_until_of(record), -size)
    lib.call('HDEL', lib.ENDS, id)
  end
  lib.remove_from_line(lib.line_and_entry(id, record, tail))
end

function lib.enter_state(change, id, due, claim_order, tail)
  local size = lib.tail_size(tail, change.note)
  lib.tally(change.to, tail.names, 1, size)
  if change.to >= lib.DONE and change.to ~= lib.BLOCKED then lib.add_weight(tail.queue, change.keep_until, size) end
  local record = lib.build_record(change, due, claim_order, lib.format_tail(tail))
  lib.add_to_line(lib.line_and_entry(id, record, tail))
  lib.call('HSET', lib.JOBS, id, record)
end

-- Makes any change of any job; answers whether, and the tail of the job as it was. False if it would let two jobs hold
-- a key.
function lib.make_change(change, id, record, entry, limits, now)
  local old = lib.tail_of(record)
  local tail = lib.modify_tail(change, old)
  -- Running jobs have theirs. One that waits may come into a line where `migrate` has been.
  if change.was ~= lib.RUNNING then tail.lane = lib.lane_for(limits, tail.task, tail.lane) end
  local holds = change.to ~= lib.GONE and tail.key and tail.key_held_until ~= lib.NO_TIME
  if holds and lib.key_holder(lib.key_field(tail.task, tail.key), id, now) then return false end
  lib.leave_state(change.was, id, record, old, entry)
  lib.release_key(old, id)
  if change.to == lib.GONE then
    lib.forget(id, old)
  else
    lib.hold_key(tail, id)
    local claim_order = change.claim_order or lib.claim_order_of(record)
    lib.enter_state(change, id, change.due or lib.due_of(record), claim_order, tail)
  end
  return true, old
end

function lib.write_changes()
  lib.call_in_batches('HSET', lib.ENDS, lib.new_outcomes)
  lib.call_in_batches('HDEL', lib.JOBS, lib.gone_ids)
  lib.call_in_batches('HDEL', lib.RUN, lib.ended_ids)
  lib.tally_endings()
  lib.write_lines()
end

-- How many jobs each owner runs: as many as before where one starts as many as end.
function lib.write_held()
  for owner, count in pairs(lib.freed_counts) do
    if count ~= 0 and lib.call('HINCRBY', lib.HELD, owner, -count) <= 0 then lib.call('HDEL', lib.HELD, owner) end
  end
  lib.freed_counts = {}
end

function lib.fetch_record(id)
  return lib.merge_outcome(lib.call('HGET', lib.JOBS, id), lib.call('HGET', lib.ENDS, id))
end

function lib.is_as_seen(change, record)
  return record and change.was == lib.byte(record, 1) and lib.sub(record, 2, 5) == change.epoch
end

-- Whether the job still has the times that the change was made from, if it names any.
function lib.has_seen_times(change, record)
  if not change.seen_due then return true end
  return lib.due_of(record) == change.seen_due
    and (lib.tail_of(record).expires or lib.NO_TIME) == change.seen_expires
end

-- Makes one change if it is still valid; answers whether, and queue, task and lane of a job that no longer runs, unless
-- `plain_jobs` counts it.
function lib.apply_one(change, id, entry, limits, now)
  if entry then
    local running_as = lib.plain_jobs[entry] or lib.running_as(entry)
    local of = running_as.alike
    if change.was ~= lib.RUNNING or of.epoch ~= change.epoch or of.owner ~= change.owner then return false end
    if change.quick and of.names then
      lib.finish(change, id, of)
      running_as.ended = running_as.ended + 1
      return true
    end
    of = change.quick and lib.keyless_job_of(id)
    if of then
      lib.finish(change, id, of)
      return true, of
    end
    local running = lib.fetch_record(id)
    if not lib.has_seen_times(change, running) then return false end
    return lib.make_change(change, id, running, entry, limits, now)
  end
  local record = change.was ~= lib.RUNNING and lib.fetch_record(id)
  return lib.is_as_seen(change, record) and lib.has_seen_times(change, record)
    and (lib.make_change(change, id, record, nil, limits, now))
end

function lib.lower_levels_of(limits, change, job, now)
  local levels = lib.levels_of(limits, job.queue, job.task, job.lane)
  lib.lower_levels(levels, 1)
  if change.correction then lib.correct_levels(levels, now, change.correction) end
end

-- What a change does to levels and places. job: one that no longer runs.
function lib.count_end(limits, change, id, good, job, now)
  if good and job then
    if change.keeps then return lib.keep_place(limits, change, id, job, now) end
    return lib.lower_levels_of(limits, change, job, now)
  end
  if not good and change.was == lib.RUNNING and not change.keeps then lib.free_place(limits, change, id, now) end
end

-- Jobs with one entry count for the same levels.
function lib.count_plain_ends(limits)
  local by_lane, counts = {}, {}
  for _, of in pairs(lib.plain_jobs) do
    if of.ended > 0 then
      local by = of.alike.by or lib.counted_by(limits, of.alike.names, of.lane ~= nil)
      of.alike.by, counts[by] = by, (counts[by] or 0) + of.ended
      if by.prefix then
        local ended = lib.get_list(by_lane, by)
        ended[of.lane] = (ended[of.lane] or 0) + of.ended
      end
    end
  end
  for by, ended in pairs(by_lane) do
    lib.read_lane_levels(by, ended)
    for lane, count in pairs(ended) do lib.lower_level(by.lanes[lane], count) end
  end
  for by, count in pairs(counts) do lib.lower_levels(by.shared, count) end
end

-- Makes each change that is still valid; answers a text of 1 and 0. numbers: which description is whose, 2 bytes each.
-- Cost: one read of as many entries as there are ids; a job that is not plain takes one command more where its first
-- attempt ends for good and it has no key, else some eight.
function lib.apply(descriptions, ids, numbers, limits, now)
  local parsed, valid = {}, {}
  for number, text in ipairs(descriptions) do parsed[number] = lib.parse_change(text) end
  local change = parsed[1]
  for place, entry in ipairs(lib.fetch(lib.RUN, ids)) do
    if parsed[2] then change = parsed[lib.parse('>I2', numbers, 2 * place - 1)] end
    local good, job = lib.apply_one(change, ids[place], entry, limits, now)
    if job and limits or not good then lib.count_end(limits, change, ids[place], good, job, now) end
    valid[place] = good and '1' or '0'
  end
  if limits then lib.count_plain_ends(limits) end
  lib.write_changes()
  return lib.concat(valid)
end
