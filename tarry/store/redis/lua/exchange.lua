-- ARGV: now, owner, lease, limit, whether due jobs become ready, the wants (how many; queue, band, count), the
-- descriptions of changes (how many; each), the numbers of the descriptions, then the ids of the jobs they are for.
local now, owner, lease, limit = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now8, at = lib.pack('>I8', now), 7

local function read_wants()
  local wants = {}
  for number = 1, tonumber(ARGV[6]) do
    wants[number] = {queue = ARGV[at], band = ARGV[at + 1], count = tonumber(ARGV[at + 2])}
    at = at + 3
  end
  return wants
end

local function read_changes()
  local descriptions, ids = {}, {}
  local last = at + tonumber(ARGV[at])
  for number = at + 1, last do descriptions[#descriptions + 1] = ARGV[number] end
  for number = last + 2, #ARGV do ids[#ids + 1] = ARGV[number] end
  return descriptions, ids, ARGV[last + 1]
end

local function rings(descriptions, limits)
  local work, result = limits, false
  for _, text in ipairs(descriptions) do
    local to = lib.byte(text, 2)
    if to >= lib.DONE then result = true else work = true end
  end
  return (work and 'w' or '') .. (result and 'r' or '') .. 'f'
end

local wants = read_wants()
local descriptions, ids, numbers = read_changes()
local limits, valid, bell = lib.read_limits(), '', ''
if #ids > 0 then
  valid = lib.apply(descriptions, ids, numbers, limits, now)
  bell = rings(descriptions, limits)
  -- Now already: whatever may go wrong with the claim, the changes are whole.
  if limits then lib.write_levels(now) end
  lib.write_tallies()
end
local jobs, fine, why = {}, true, nil
wants = limit > 0 and lib.open(wants) or {}
if #wants > 0 then
  if ARGV[5] == '1' then lib.promote(now, now8) end
  local claimed = {}
  -- What was taken out of its lines before an error must run: else nobody would ever find it again.
  if limits or lib.any_there(wants, lib.tasks_key) then
    fine, why = pcall(lib.choose_by_turn, limits, wants, limit, now, claimed)
  else
    fine, why = pcall(lib.choose, wants, limit, claimed)
  end
  if #claimed > 0 then
    jobs = lib.start(claimed, owner, now8)
    lib.prolong(owner, lease, now)
    lib.write_places()
    if bell == '' then bell = 'f' end
    -- There may be more: whoever was woken for these wakes the next.
    if #claimed == limit then bell = 'w' .. bell end
    lib.again = nil
  end
end
if limits then lib.write_levels(now) end
lib.write_tallies()
if bell ~= '' then lib.ring(bell) end
if not fine then error(why) end
return {valid, jobs, lib.next_due(), lib.again and string.format('%.0f', lib.again) or ''}
