-- ARGV: the first moment, the one after the last, how many at most. Answers ids and records of the finished jobs that
-- are to be forgotten then, in their order, and nothing in place of entries of `run`.
local limit = ARGV[3] + 0
-- As long as entries are.
local first, last = lib.pack('>I8', ARGV[1] + 0) .. ('\0'):rep(16), lib.pack('>I8', ARGV[2] + 0) .. ('\0'):rep(16)
local entries, ids, found = {}, {}, {}

-- Of one queue; answers how many there were.
local function see(key)
  local page, count = lib.page_with(key, first), 0
  local from = page and '[' .. page or '-'
  for _, part in ipairs(lib.call('ZRANGEBYLEX', key, from, '(' .. last, 'LIMIT', 0, limit + 1)) do
    for at = 1, #part, 24 do
      local entry = lib.sub(part, at, at + 23)
      if count < limit and not lib.less(entry, first) and lib.less(entry, last) then
        count = count + 1
        entries[#entries + 1] = entry
      end
    end
  end
end

for _, queue in ipairs(lib.call('SMEMBERS', lib.FINISHED)) do see(lib.finished_line(queue)) end
lib.sorted(entries)
for number = 1, math.min(#entries, limit) do ids[number] = lib.sub(entries[number], 9) end
for number, record in ipairs(lib.records_of(ids)) do
  found[3 * number - 2], found[3 * number - 1], found[3 * number] = ids[number], record, false
end
return found
