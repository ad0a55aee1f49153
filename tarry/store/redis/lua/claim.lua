-- Ready jobs become running ones.

-- Scheduled jobs whose time has come become ready, the earliest first.
function lib.due_ids(now)
  local ids = {}
  while #ids < lib.MOST do
    local page = lib.call('ZRANGE', lib.DUE, 0, 0)[1]
    if not page or lib.parsed('>I8', page) > now then break end
    local size = 0
    while size < #page and #ids < lib.MOST and lib.parsed('>I8', page, size + 1) <= now do
      ids[#ids + 1] = lib.sub(page, size + 9, size + 24)
      size = size + 24
    end
    lib.pop(lib.DUE, 24, size / 24)
  end
  return ids
end

function lib.promote(now, now8)
  local ids = lib.due_ids(now)
  if #ids == 0 then return end
  local ready = {}
  for number, record in ipairs(lib.fetched(lib.JOBS, ids)) do
    local id, flags = ids[number], lib.byte(record, 14)
    local at, note = lib.tail_at(record)
    local tail = lib.tail_of(record, at)
    local from = lib.FIXED[flags % 2]
    local rest = lib.sub(record, from + (lib.has(flags, 2) and 8 or 0))
    if not lib.has(flags, 2) then flags = flags + 2 end
    record = string.char(lib.READY) .. lib.sub(record, 2, 13) .. string.char(flags) .. lib.sub(record, 15, from - 1)
      .. now8 .. rest
    ready[2 * number - 1], ready[2 * number] = id, record
    local size = lib.tail_size(tail, note)
    lib.tally(lib.SCHEDULED, tail.names, -1, -size)
    lib.tally(lib.READY, tail.names, 1, size)
    lib.enlist(lib.place(id, record, tail))
  end
  lib.in_parts('HSET', lib.JOBS, ready)
  lib.write_places()
end

function lib.add_ids(ids, width, entries)
  local count = #ids
  for at = width - 15, #entries, width do
    count = count + 1
    ids[count] = lib.sub(entries, at, at + 15)
  end
end

-- Takes up to so many of the first of a line; one that had fewer is not looked at again.
function lib.take_first(key, width, most, empty, ids)
  if most == 0 or empty[key] then return end
  local entries = lib.pop(key, width, most)
  empty[key] = #entries < most * width
  lib.add_ids(ids, width, entries)
end

-- First up to its count for each want, then whatever there is, in turn.
function lib.choose(wants, limit, ids)
  local empty, any_late = {}, lib.any_there(wants, lib.late_line)
  for _, fill in ipairs({false, true}) do
    for _, want in ipairs(wants) do
      local most = math.min(fill and limit or want.count, limit - #ids)
      if most > 0 then
        local width, late = lib.WIDTHS[want.band], any_late and lib.late_part(want, most) or 0
        lib.take_first(lib.open_line(want.queue, want.band, true), width, late, empty, ids)
        lib.take_first(lib.open_line(want.queue, want.band), width, most - late, empty, ids)
      end
    end
  end
end

-- A claimed job that was to hold its key only while it waits.
function lib.released(id, record, tail)
  if not tail.key or tail.unique ~= lib.WAITING or tail.holds == lib.NOTHING then return record end
  lib.let_go(tail, id)
  tail.holds = lib.NOTHING
  record = lib.with_tail(record, tail)
  lib.call('HSET', lib.JOBS, id, record)
  return record
end

-- What `run` says of a claimed job, its owner left out.
function lib.running_entry(epochs, epoch, now8, told)
  local since = epochs[epoch]
  if not since then
    since = lib.pack('>I4', lib.parsed('>I4', epoch) + 1) .. now8
    epochs[epoch] = since
  end
  return since .. told
end

-- Whether a key that these wants have under that name is there.
function lib.any_there(wants, name)
  for from = 1, #wants, lib.MOST do
    local keys = {}
    for number = from, math.min(#wants, from + lib.MOST - 1) do
      keys[#keys + 1] = name(wants[number].queue, wants[number].band)
    end
    if lib.call('EXISTS', unpack(keys)) > 0 then return true end
  end
  return false
end

-- Answers ids and records, one after the other, as they were but for the keys that were let go.
function lib.start(ids, owner, now8)
  local jobs, entries, epochs, counts, sizes, told = {}, {}, {}, {}, {}, {}
  for number, record in ipairs(lib.fetched(lib.JOBS, ids)) do
    local id, epoch = ids[number], lib.sub(record, 2, 5)
    local names, size, at = lib.plain(record)
    local text = '\0\0\0\0\0\0'
    if not names then
      local note
      at, note = lib.tail_at(record)
      local tail = lib.tail_of(record, at)
      names, size = tail.names, lib.tail_size(tail, note)
      record = lib.released(id, record, tail)
    elseif lib.byte(record, 14) < 16 then
      local of = lib.listed(told, names)
      text = of[size] or lib.pack('>I4', size) .. names
      of[size] = text
    end
    counts[names], sizes[names] = (counts[names] or 0) + 1, (sizes[names] or 0) + size
    local last = 2 * number
    jobs[last - 1], jobs[last], entries[last - 1] = id, record, id
    entries[last] = lib.running_entry(epochs, epoch, now8, text) .. owner
  end
  for names, count in pairs(counts) do
    lib.tally(lib.READY, names, -count, -sizes[names])
    lib.tally(lib.RUNNING, names, count, sizes[names])
  end
  lib.in_parts('HSET', lib.RUN, entries)
  lib.call('HINCRBY', lib.HELD, owner, #ids)
  return jobs
end

function lib.prolong(owner, lease, now)
  local until_ = tonumber(lib.call('ZSCORE', lib.LEASES, owner) or 0)
  if until_ < now + math.floor(lease / 2) then
    lib.call('ZADD', lib.LEASES, string.format('%.0f', now + lease), owner)
  end
end

-- The queues that are not paused.
function lib.open(wants)
  if lib.call('EXISTS', lib.PAUSED) == 0 then return wants end
  local left = {}
  for _, want in ipairs(wants) do
    if lib.call('SISMEMBER', lib.PAUSED, want.queue) == 0 then left[#left + 1] = want end
  end
  return left
end

function lib.next_due()
  local page = lib.call('ZRANGE', lib.DUE, 0, 0)[1]
  return page and lib.sub(page, 1, 8) or ''
end
