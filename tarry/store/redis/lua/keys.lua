-- Who holds which unique key. Times here may be later than a double can count to the microsecond: HELD is 2^62.
function lib.key_field(task, key) return lib.pack('>I2', #task) .. task .. key end

function lib.tail_in(record) return lib.tail_of(record, (lib.tail_at(record))) end

function lib.with_tail(record, tail)
  return lib.sub(record, 1, lib.tail_at(record) - 1) .. lib.tail_text(tail)
end

-- Whoever else holds the key at that time; one whose time with it is over loses it here.
function lib.holder(field, id, now)
  local other = lib.call('HGET', lib.KEYED, field)
  if not other or other == id then return nil end
  local record = lib.call('HGET', lib.JOBS, other)
  if record then
    local tail = lib.tail_in(record)
    if lib.parsed('>I8', tail.holds) > now then return other end
    tail.holds = lib.NOTHING
    lib.call('HSET', lib.JOBS, other, lib.with_tail(record, tail))
  end
  lib.call('HDEL', lib.KEYED, field)
  return nil
end

function lib.let_go(tail, id)
  if not tail.key or tail.holds == lib.NOTHING then return end
  local field = lib.key_field(tail.task, tail.key)
  if lib.call('HGET', lib.KEYED, field) == id then lib.call('HDEL', lib.KEYED, field) end
end

function lib.take_hold(tail, id)
  if tail.key and tail.holds ~= lib.NOTHING then lib.call('HSET', lib.KEYED, lib.key_field(tail.task, tail.key), id) end
end
