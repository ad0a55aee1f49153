-- ARGV: 1 if nothing about the jobs is unusual, how many they are, ids and records in turn; then, if nothing is, what
-- that comes to: the runs (how many; line, width, entries), the ids as one run, the tallies (how many; field, count,
-- size). If they are all plain, none was there before, and no limit is set, the script ends here: the rest of it need
-- not even be begun.
local function all_new(last)
  if last == 3 then return lib.call('HEXISTS', KEYS[1], ARGV[3]) == 0 end
  local ids = {}
  for at = 3, last, 2 do ids[#ids + 1] = ARGV[at] end
  for _, record in ipairs(lib.call('HMGET', KEYS[1], unpack(ids))) do
    if record then return false end
  end
  return true
end

local at = 3 + 2 * ARGV[2]
if ARGV[1] == '1' and lib.call('EXISTS', lib.P .. 'limits') == 0 and all_new(at - 2) then
  lib.call('HSET', KEYS[1], unpack(ARGV, 3, at - 1))
  for _ = 1, ARGV[at] do
    local line = ARGV[at + 1]
    local new = lib.add(lib.P .. line, 0 + ARGV[at + 2], ARGV[at + 3])
    if new and line ~= 'due' then lib.call('SADD', lib.P .. 'queues', lib.sub(line, 3)) end
    at = at + 3
  end
  lib.add(lib.P .. 'ids', 16, ARGV[at + 1])
  at = at + 2
  for _ = 1, ARGV[at] do
    lib.call('HINCRBY', lib.P .. 'counts', ARGV[at + 1], ARGV[at + 2])
    if ARGV[at + 3] ~= '0' then lib.call('HINCRBY', lib.P .. 'sizes', ARGV[at + 1], ARGV[at + 3]) end
    at = at + 3
  end
  lib.ring('w')
  return {}
end
