-- ARGV: now, owner, lease, then ids and epochs in turn. Answers which of the ids that owner does not run in that epoch.
local now, owner, ids, lost = tonumber(ARGV[1]), ARGV[2], {}, {}
for at = 4, #ARGV, 2 do ids[#ids + 1] = ARGV[at] end
lib.prolong(owner, tonumber(ARGV[3]), now)
for number, entry in ipairs(lib.fetched(lib.RUN, ids)) do
  local held = entry and lib.sub(entry, 1, 4) == ARGV[2 * number + 3] and lib.owner_of(entry) == owner
  if not held then lost[#lost + 1] = ids[number] end
end
return lost
