-- Changes, as `tarry.store.redis.changes` packs them: those that differ only in their job share one description.
lib.M_DUE, lib.M_RANK, lib.M_EXPIRES, lib.M_HOLDS, lib.M_QUEUE, lib.M_BODY = 1, 2, 4, 8, 16, 32

function lib.has(flags, bit) return math.floor(flags / bit) % 2 == 1 end

function lib.described(text)
  local was, to, epoch, flags, modified, until_, length = lib.parsed('>BBc4BBc8I4', text)
  local at = 21 + length
  local alike = {
    was = was, to = to, epoch = epoch, until_ = until_, modified = modified, fields = lib.sub(text, 21, at - 1),
    start = string.char(to) .. epoch, flags = string.char(flags), ranked = string.char(flags + 1), note = 0,
    quick = was == lib.RUNNING and to >= lib.DONE and modified == 0, endings = {}, seen = {},
  }
  alike.outcome = alike.start .. alike.flags .. alike.fields
  if flags >= 16 then alike.note = lib.parsed('>I4', text, lib.FIXED[flags - 16] + 6) end
  local function taken(size)
    at = at + size
    return lib.sub(text, at - size, at - 1)
  end
  if lib.has(modified, lib.M_DUE) then alike.due = taken(8) end
  if lib.has(modified, lib.M_RANK) then
    alike.rank = taken(6)
    if alike.rank == '\128\0\0\0\0\0' then alike.rank = '' end
  end
  if lib.has(modified, lib.M_EXPIRES) then alike.expires = taken(8) end
  if lib.has(modified, lib.M_HOLDS) then alike.holds = taken(8) end
  if lib.has(modified, lib.M_QUEUE) then alike.queue = taken(lib.parsed('>I2', taken(2))) end
  if lib.has(modified, lib.M_BODY) then alike.body = taken(lib.parsed('>I4', taken(4))) end
  alike.owner = lib.sub(text, at)
  return alike
end


function lib.stop_running(id, entry)
  lib.unrun[#lib.unrun + 1] = id
  lib.freed[entry] = (lib.freed[entry] or 0) + 1
end

-- The record as the change makes it; its tail is given.
function lib.remade(alike, due, rank, tail)
  if rank == '' then return alike.start .. due .. alike.flags .. alike.fields .. tail end
  return alike.start .. due .. alike.ranked .. rank .. alike.fields .. tail
end

function lib.forget(id)
  lib.gone[#lib.gone + 1] = id
  lib.drop(lib.IDS, id)
end

-- What plain jobs of the same queue and task that end in the same way have in common.
function lib.ending(alike, names)
  local queue = lib.split(names)
  local line = alike.to ~= lib.GONE and lib.listed(lib.added, lib.finished_line(queue))
  local common = {line = line, queue = queue, names = names, to = alike.to, count = 0, before = 0, after = 0}
  alike.endings[names] = common
  lib.alike_names[#lib.alike_names + 1] = common
  return common
end

-- Names and size of a plain job that runs, as its entry in `run` has them; else false.
function lib.told_by(entry)
  local queue, task = lib.byte(entry, 17, 18)
  local of = queue > 0 and {names = lib.sub(entry, 17, 18 + queue + task), size = lib.parsed('>I4', entry, 13)}
  lib.told[entry] = of
  return of
end

-- An attempt of a plain job that has ended for good: by far the most changes are this one. Its record is not even read.
function lib.finish(alike, id, entry, of)
  local common = alike.endings[of.names] or lib.ending(alike, of.names)
  common.count, common.before = common.count + 1, common.before + of.size
  lib.stop_running(id, entry)
  if alike.to == lib.GONE then return lib.forget(id) end
  local line, count = common.line, #lib.outcomes
  line[#line + 1] = alike.until_ .. id
  common.after = common.after + of.size + alike.note
  lib.outcomes[count + 1], lib.outcomes[count + 2] = id, alike.outcome
end

function lib.tally_endings()
  for _, common in ipairs(lib.alike_names) do
    lib.tally(lib.RUNNING, common.names, -common.count, -common.before)
    if common.to ~= lib.GONE then
      lib.tally(common.to, common.names, common.count, common.after)
      lib.weigh(common.queue, common.after)
    end
  end
end

function lib.modified(alike, old)
  local tail = {}
  for name, value in pairs(old) do tail[name] = value end
  tail.expires, tail.holds = alike.expires or tail.expires, alike.holds or tail.holds
  tail.queue, tail.body = alike.queue or tail.queue, alike.body or tail.body
  tail.names = lib.names_of(tail.queue, tail.task)
  return tail
end

function lib.leave(state, id, record, tail, entry)
  local size = lib.tail_size(tail, (select(2, lib.tail_at(record))))
  lib.tally(state, tail.names, -1, -size)
  if state == lib.RUNNING then return lib.stop_running(id, entry) end
  if state >= lib.DONE then
    lib.weigh(tail.queue, -size)
    lib.call('HDEL', lib.ENDS, id)
  end
  lib.drop(lib.place(id, record, tail))
end

function lib.enter(alike, id, due, rank, tail)
  local size = lib.tail_size(tail, alike.note)
  lib.tally(alike.to, tail.names, 1, size)
  if alike.to >= lib.DONE then lib.weigh(tail.queue, size) end
  local record = lib.remade(alike, due, rank, lib.tail_text(tail))
  lib.enlist(lib.place(id, record, tail))
  lib.call('HSET', lib.JOBS, id, record)
end

-- Any change of any job, one at a time; false if it would let two jobs hold a key.
function lib.change(alike, id, record, entry, limits, now)
  local old = lib.tail_in(record)
  local tail = lib.modified(alike, old)
  if alike.was >= lib.DONE then tail.lane = lib.lane_for(limits, tail.task, tail.lane) end
  local holds = alike.to ~= lib.GONE and tail.key and tail.holds ~= lib.NOTHING
  if holds and lib.holder(lib.key_field(tail.task, tail.key), id, now) then return false end
  lib.leave(alike.was, id, record, old, entry)
  lib.let_go(old, id)
  if alike.to == lib.GONE then
    lib.forget(id)
  else
    lib.take_hold(tail, id)
    lib.enter(alike, id, alike.due or lib.due_of(record), alike.rank or lib.rank_of(record), tail)
  end
  return true, old
end

function lib.write_changes()
  lib.in_parts('HSET', lib.ENDS, lib.outcomes)
  lib.in_parts('HDEL', lib.JOBS, lib.gone)
  lib.in_parts('HDEL', lib.RUN, lib.unrun)
  for entry, count in pairs(lib.freed) do
    local owner = lib.owner_of(entry)
    if lib.call('HINCRBY', lib.HELD, owner, -count) <= 0 then lib.call('HDEL', lib.HELD, owner) end
  end
  lib.tally_endings()
  lib.write_places()
end

function lib.record_of(id)
  return lib.with_outcome(lib.call('HGET', lib.JOBS, id), lib.call('HGET', lib.ENDS, id))
end

function lib.fits(alike, record)
  return record and alike.was == lib.byte(record, 1) and lib.sub(record, 2, 5) == alike.epoch
end

-- Whether a job that runs is the attempt that was seen: of many that began together the entry is the same text.
function lib.runs(alike, entry)
  local same = alike.seen[entry]
  if same == nil then
    same = alike.was == lib.RUNNING and lib.sub(entry, 1, 4) == alike.epoch and lib.owner_of(entry) == alike.owner
    alike.seen[entry] = same
  end
  return same
end

-- Makes one change if it is still valid; answers whether, and queue, task and lane of a job that no longer runs.
function lib.apply_one(alike, id, entry, limits, now)
  if entry then
    if not lib.runs(alike, entry) then return false end
    local of = alike.quick and (lib.told[entry] or lib.told_by(entry))
    if of then
      lib.finish(alike, id, entry, of)
      return true, of
    end
    return lib.change(alike, id, lib.record_of(id), entry, limits, now)
  end
  local record = alike.was ~= lib.RUNNING and lib.record_of(id)
  return lib.fits(alike, record) and (lib.change(alike, id, record, nil, limits, now))
end

function lib.end_under(limits, job)
  if job.queue then return lib.ended(limits, job.queue, job.task, job.lane) end
  local queue, task = lib.split(job.names)
  lib.ended(limits, queue, task, nil)
end

-- Makes each change that is still valid; answers a text of 1 and 0. Numbers tell which description is whose.
function lib.apply(descriptions, ids, numbers, limits, now)
  lib.outcomes, lib.gone, lib.unrun, lib.freed, lib.alike_names, lib.told = {}, {}, {}, {}, {}, {}
  local alikes, valid = {}, {}
  for number, text in ipairs(descriptions) do alikes[number] = lib.described(text) end
  local alike = alikes[1]
  for place, entry in ipairs(lib.fetched(lib.RUN, ids)) do
    if alikes[2] then alike = alikes[lib.parsed('>I2', numbers, 2 * place - 1)] end
    local good, job = lib.apply_one(alike, ids[place], entry, limits, now)
    if good and job and limits then lib.end_under(limits, job) end
    valid[place] = good and '1' or '0'
  end
  lib.write_changes()
  return lib.concat(valid)
end
