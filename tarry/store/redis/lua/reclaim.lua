-- ARGV: now, limit, and an owner or nothing. Answers ids, records and entries of `run` of what that owner runs, or of
-- what those run whose lease is over.
local now, limit, of = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local lost, any, ids, entries = {}, false, {}, {}
for _, owner in ipairs(lib.call('HKEYS', lib.HELD)) do
  if of then
    lost[owner] = owner == of
  else
    lost[owner] = tonumber(lib.call('ZSCORE', lib.LEASES, owner) or 0) <= now
  end
  any = any or lost[owner]
end
local cursor = '0'
while any do
  local answer = lib.call('HSCAN', lib.RUN, cursor, 'COUNT', lib.MOST)
  for at = 1, #answer[2], 2 do
    local id, entry = answer[2][at], answer[2][at + 1]
    if lost[lib.owner_of(entry)] and not entries[id] and #ids < limit then
      ids[#ids + 1], entries[id] = id, entry
    end
  end
  cursor = answer[1]
  if cursor == '0' or #ids >= limit then break end
end
local found = {}
for number, record in ipairs(lib.fetched(lib.JOBS, lib.sorted(ids))) do
  found[3 * number - 2], found[3 * number - 1], found[3 * number] = ids[number], record, entries[ids[number]]
end
return found
