-- ARGV: after. Looks at some thousand jobs after that id; answers for each state and names the earliest due among them,
-- and where to go on; nothing if there is no more.
local oldest, found = {}, {}
local on = lib.walk(ARGV[1], 33, function(_, record, entry)
  local names = lib.plain(record) or lib.tail_in(record).names
  local group, due = (entry and lib.RUNNING or lib.byte(record, 1)) .. names, lib.due_of(record)
  local other = oldest[group]
  if not other or lib.parsed('>I8', due) < lib.parsed('>I8', other) then oldest[group] = due end
end)
for group, due in pairs(oldest) do
  found[#found + 1] = group
  found[#found + 1] = due
end
return {found, on}
