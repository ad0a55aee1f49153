-- Taking entries out of the lines of `lines.lua`.

-- Removes the entries, a sorted list of some that are there.
function lib.remove(key, width, entries)
  local at = 1
  while at <= #entries do
    local page = lib.page_with(key, entries[at])
    local last, doomed, kept = page and lib.sub(page, -width), {}, {}
    repeat
      doomed[entries[at]] = true
      at = at + 1
    until at > #entries or not page or lib.less(last, entries[at])
    if page then
      for from = 1, #page, width do
        local entry = lib.sub(page, from, from + width - 1)
        if not doomed[entry] then kept[#kept + 1] = entry end
      end
      lib.call('ZREM', key, page)
      if #kept > 0 then lib.call('ZADD', key, 0, lib.concat(kept)) end
    end
  end
end

-- Takes up to so many of the first entries; answers them in one text.
function lib.pop(key, width, most)
  local taken, left = {}, most * width
  while left > 0 do
    local pages = lib.call('ZPOPMIN', key, math.max(1, math.floor(left / lib.PAGE)))
    if #pages == 0 then break end
    for number = 1, #pages, 2 do
      local page = pages[number]
      if #page > left then
        lib.call('ZADD', key, 0, lib.sub(page, left + 1))
        page = lib.sub(page, 1, left)
      end
      taken[#taken + 1] = page
      left = left - #page
    end
  end
  return lib.concat(taken)
end

-- Up to so many of the first entries, which stay.
function lib.peek(key, width, most)
  local seen, left, from = {}, most * width, 0
  while left > 0 do
    local pages = lib.call('ZRANGE', key, from, from + math.floor(left / lib.PAGE))
    if #pages == 0 then break end
    from = from + #pages
    for _, page in ipairs(pages) do
      page = lib.sub(page, 1, left)
      seen[#seen + 1] = page
      left = left - #page
      if left == 0 then break end
    end
  end
  return lib.concat(seen)
end
