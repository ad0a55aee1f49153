-- A job's record: state 1, epoch 4, due 8, flags 1, [claim_order 6] [state_since 8] [failures 4, crashes 4]
-- [keep_until 8] [length 4, note], then the tail, which seldom changes: flags 1, the columns that they say (see
-- `shared/columns.py`), names, body. `claim_order` is 2^47 less the priority. Numbers are big-endian, so that they sort
-- as bytes do.
-- `tarry.store.redis.record` writes records.
--
-- Lua is slow with long texts, so most changes of a job leave its record alone. A running job has an entry in `run`:
-- epoch 4, state_since 8, size 4, names, owner; of a job that has nothing unusual but a lane, the size is 2^31 more,
-- and before the names stand length 2, lane; of an unusual job, six zero bytes stand for size and names. A finished job
-- may have its outcome in `ends`: state 1, epoch 4, flags 1, and a record's fields from state_since to the note.
lib.SCHEDULED, lib.READY, lib.RUNNING, lib.DONE, lib.DEAD, lib.GONE, lib.BLOCKED = 0, 1, 2, 3, 4, 6, 7
lib.NO_TIME, lib.WHILE_WAITING = string.rep('\0', 8), string.rep('\255', 8)
-- 2^62: `model.job.HELD`.
lib.FOREVER = '\64' .. string.rep('\0', 7)
-- The flag of a tail that has a lane, and what the size in an entry of `run` has more then.
lib.LANE_FLAG, lib.HAS_LANE = 4, 2^31
-- Where the tail begins, or a note's length, by the record's flags.
lib.FIXED_SIZES = {}
for flags = 0, 15 do
  lib.FIXED_SIZES[flags] = 15 + flags % 2 * 6 + math.floor(flags / 2) % 2 * 8 + math.floor(flags / 4) % 2 * 8
    + math.floor(flags / 8) * 8
end

function lib.due_of(record) return lib.sub(record, 6, 13) end

function lib.claim_order_of(record) return lib.byte(record, 14) % 2 == 1 and lib.sub(record, 15, 20) or '' end

-- Where the tail begins, and how long the note is.
function lib.tail_position(record)
  local flags = lib.byte(record, 14)
  if flags < 16 then return lib.FIXED_SIZES[flags], 0 end
  local at = lib.FIXED_SIZES[flags - 16]
  local length = lib.parse('>I4', record, at)
  return at + 4 + length, length
end

-- Names and size of a job that has nothing unusual in its tail but perhaps a lane, where the tail begins, and where the
-- names do; else nil.
function lib.names_and_size(record)
  local at, note = lib.FIXED_SIZES[lib.byte(record, 14)], 0
  if not at then at, note = lib.tail_position(record) end
  local flags, queue, task = lib.byte(record, at, at + 2)
  local from = at + 1
  if flags == lib.LANE_FLAG then
    from = from + 2 + 256 * queue + task
    queue, task = lib.byte(record, from, from + 1)
  elseif flags ~= 0 then
    return nil
  end
  if queue == 255 then return nil end
  local last = from + 1 + queue + task
  return lib.sub(record, from, last), #record - last + note, at, from
end

-- As `names_and_size`, of a job without a lane.
function lib.plain_names(record)
  local names, size, at, from = lib.names_and_size(record)
  if names and from == at + 1 then return names, size end
end

-- The record with the outcome that `ends` has for it, if it has one.
function lib.merge_outcome(record, outcome)
  if not record or not outcome then return record end
  local claim_order = lib.claim_order_of(record)
  local flags = string.char(lib.byte(outcome, 6) + (claim_order == '' and 0 or 1))
  return lib.sub(outcome, 1, 5) .. lib.due_of(record) .. flags .. claim_order .. lib.sub(outcome, 7)
    .. lib.sub(record, (lib.tail_position(record)))
end

-- What an entry of `run` says of its job: names (false: nothing), size, lane; and where its owner begins.
function lib.parse_entry(entry)
  local size, first, second = lib.parse('>I4BB', entry, 13)
  if size < lib.HAS_LANE then
    local owner = 19 + first + second
    return first > 0 and lib.sub(entry, 17, owner - 1), size, nil, owner
  end
  local at = 19 + 256 * first + second
  local queue, task = lib.byte(entry, at, at + 1)
  local owner = at + 2 + queue + task
  return lib.sub(entry, at, owner - 1), size - lib.HAS_LANE, lib.sub(entry, 19, at - 1), owner
end

-- The entry in front of its lane, the lane (nil: it has none), and what comes after it.
function lib.cut_entry(entry)
  local size, first, second = lib.byte(entry, 13), lib.byte(entry, 17, 18)
  if size < 128 then return entry end
  local at = 19 + 256 * first + second
  return lib.sub(entry, 1, 16), lib.sub(entry, 19, at - 1), lib.sub(entry, at)
end

function lib.owner_of(entry) return lib.sub(entry, (select(4, lib.parse_entry(entry)))) end

-- The entry without what it says of a plain job.
function lib.mark_unusual(entry) return lib.sub(entry, 1, 12) .. '\0\0\0\0\0\0' .. lib.owner_of(entry) end

function lib.since_of(record)
  local flags = lib.byte(record, 14)
  if math.floor(flags / 2) % 2 == 0 then return lib.due_of(record) end
  local at = lib.FIXED_SIZES[flags % 2]
  return lib.sub(record, at, at + 7)
end

-- Of a ready job; the rule is `lifecycle.is_late`.
function lib.is_late(record) return lib.less(lib.due_of(record), lib.since_of(record)) end

function lib.keep_until_of(record)
  local flags = lib.byte(record, 14)
  if math.floor(flags / 8) % 2 == 0 then return lib.NO_TIME end
  local at = lib.FIXED_SIZES[flags % 8]
  return lib.sub(record, at, at + 7)
end

-- Queue and task, and where names end. Names are both in one text, by which jobs are also counted.
function lib.split_names(names)
  local queue, task, at = lib.byte(names, 1), lib.byte(names, 2), 3
  if queue == 255 then
    queue, task = lib.parse('>I2I2', names, 2)
    at = 6
  end
  return lib.sub(names, at, at + queue - 1), lib.sub(names, at + queue, at + queue + task - 1), at + queue + task
end

function lib.join_names(queue, task)
  if #queue < 255 and #task < 256 then return string.char(#queue, #task) .. queue .. task end
  return lib.pack('>BI2I2', 255, #queue, #task) .. queue .. task
end

-- `lua_sources.py` makes parse_tail, format_tail and tail_size of the table of columns.
function lib.tail_of(record) return lib.parse_tail(record, (lib.tail_position(record))) end

function lib.replace_tail(record, tail)
  return lib.sub(record, 1, lib.tail_position(record) - 1) .. lib.format_tail(tail)
end

function lib.has_flag(flags, bit) return math.floor(flags / bit) % 2 == 1 end

-- The record of a job that waits, in another state that it waits in since then.
function lib.as_waiting(record, state, due, since)
  local flags = lib.byte(record, 14)
  local from = lib.FIXED_SIZES[flags % 2]
  local rest = lib.sub(record, from + (lib.has_flag(flags, 2) and 8 or 0))
  if not lib.has_flag(flags, 2) then flags = flags + 2 end
  return string.char(state) .. lib.sub(record, 2, 5) .. due .. string.char(flags) .. lib.sub(record, 15, from - 1)
    .. since .. rest
end
