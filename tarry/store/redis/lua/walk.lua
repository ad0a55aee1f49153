-- All jobs by id, some at a time.
lib.LOOKED_AT = 2000

-- The ids after that one, of so many pages, and whether there are more.
function lib.ids_after(after, pages)
  local first = lib.page_with(lib.IDS, after)
  local ids, from = {}, first and '[' .. first or '-'
  local found = lib.call('ZRANGEBYLEX', lib.IDS, from, '+', 'LIMIT', 0, pages + 1)
  for number = 1, math.min(#found, pages) do
    local page = found[number]
    for at = 1, #page, 16 do
      local id = lib.sub(page, at, at + 15)
      if number > 1 or lib.less(after, id) then ids[#ids + 1] = id end
    end
  end
  return ids, #found > pages
end

-- Shows each job after that one, until it is told to stop or has shown enough; answers where to go on, nothing if there
-- is no more.
function lib.walk(after, pages, show)
  local looked, more = 0, true
  while more and looked < lib.LOOKED_AT do
    local ids
    ids, more = lib.ids_after(after, pages)
    local records, runs = lib.records_of(ids), lib.fetched(lib.RUN, ids)
    for number, id in ipairs(ids) do
      if show(id, records[number], runs[number]) then return '' end
    end
    looked, after = looked + #ids, ids[#ids] or after
    if #ids == 0 then pages = pages + 1 end
  end
  return more and after or ''
end
