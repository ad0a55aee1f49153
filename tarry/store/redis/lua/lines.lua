-- Sorted lines of entries of one width, kept as pages: a member of a sorted set, whose scores are all 0, is many
-- entries one after another. So a waiting job costs its own bytes and little more, and a claim of a thousand touches
-- some fifty members. Pages do not overlap; each begins with its least entry.

lib.call, lib.sub, lib.byte, lib.concat = redis.call, string.sub, string.byte, table.concat
lib.pack, lib.parse = struct.pack, struct.unpack
lib.P = lib.sub(KEYS[1], 1, -5)

-- At most so many bytes make a page.
lib.PAGE_BYTES = 480
-- The numbers by which entries of a size are compared. Of those in lanes the last byte is left out: the id decides
-- before.
lib.COMPARED_AS = {
  [8] = '>I4I4', [16] = '>I6I6I4', [24] = '>I6I6I6I6', [25] = '>I6I6I6I6', [30] = '>I6I6I6I6I6', [31] = '>I6I6I6I6I6',
}

-- The widths of entries in lanes.
lib.IS_OF_LANE = {[25] = true, [31] = true}

-- By bytes: Lua's own comparison goes by the server's locale.
function lib.less(a, b)
  if a == b then return false end
  if #a > 12 then
    -- Mostly these bytes differ, and the rest need not be parsed.
    local a1, a2 = lib.parse('>I6I6', a)
    local b1, b2 = lib.parse('>I6I6', b)
    if a1 ~= b1 then return a1 < b1 end
    if a2 ~= b2 then return a2 < b2 end
  end
  local digits = lib.COMPARED_AS[#a]
  local a1, a2, a3, a4, a5 = lib.parse(digits, a)
  local b1, b2, b3, b4, b5 = lib.parse(digits, b)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  if a3 ~= b3 then return a3 < b3 end
  if a4 ~= b4 then return a4 < b4 end
  return a5 < b5
end

-- Writes a sorted text as pages of that size.
function lib.write_pages(key, text, size)
  local members = {}
  for at = 1, #text, size do
    members[#members + 1] = '0'
    members[#members + 1] = lib.sub(text, at, at + size - 1)
    -- Lua's stack is bounded.
    if #members == 2000 then
      lib.call('ZADD', key, unpack(members))
      members = {}
    end
  end
  if #members > 0 then lib.call('ZADD', key, unpack(members)) end
end

-- As many bytes as whole entries take in a full page.
function lib.page_bytes(width) return lib.PAGE_BYTES - lib.PAGE_BYTES % width end

-- Writes pages of about the same size, so that each has room for what comes between.
function lib.write_even_pages(key, width, text)
  local pages = math.ceil(#text / lib.page_bytes(width))
  lib.write_pages(key, text, math.ceil(#text / width / pages) * width)
end

-- Two sorted runs as one.
function lib.merge(width, a, b)
  if lib.less(lib.sub(a, -width), lib.sub(b, 1, width)) then return a .. b end
  if lib.less(lib.sub(b, -width), lib.sub(a, 1, width)) then return b .. a end
  local out, i, j = {}, 1, 1
  while i <= #a and j <= #b do
    local left, right = lib.sub(a, i, i + width - 1), lib.sub(b, j, j + width - 1)
    if lib.less(right, left) then
      out[#out + 1], j = right, j + width
    else
      out[#out + 1], i = left, i + width
    end
  end
  return lib.concat(out) .. lib.sub(a, i) .. lib.sub(b, j)
end

-- How many bytes of the run come before the entry.
function lib.bytes_before(width, run, entry)
  local low, high = 0, #run / width
  while low < high do
    local middle = math.floor((low + high) / 2)
    if lib.less(lib.sub(run, middle * width + 1, (middle + 1) * width), entry) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low * width
end

-- The page in which the entry is, or would be; nil if it comes before all.
function lib.page_with(key, entry)
  return lib.call('ZREVRANGEBYLEX', key, '(' .. entry .. '\255', '-', 'LIMIT', '0', '1')[1]
end

-- Adds a sorted run that does not come after all others.
function lib.add_between(key, width, run)
  while run ~= '' do
    local page = lib.page_with(key, lib.sub(run, 1, width)) or lib.call('ZRANGE', key, '0', '0')[1]
    local following = lib.call('ZRANGEBYLEX', key, '(' .. page, '+', 'LIMIT', '0', '1')[1]
    local size = following and lib.bytes_before(width, run, lib.sub(following, 1, width)) or #run
    lib.call('ZREM', key, page)
    lib.write_even_pages(key, width, lib.merge(width, page, lib.sub(run, 1, size)))
    run = lib.sub(run, size + 1)
  end
end

-- Adds an entry that comes after all others, as a page of its own: in the last page it would mean to write that anew.
-- Sixteen such pages become one; in a lane a hundred become a few, since Redis keeps as many in one piece of memory.
function lib.append_one(key, width, entry)
  lib.call('ZADD', key, '0', entry)
  local many = '-16'
  if lib.IS_OF_LANE[width] then
    -- The last byte of the id: a look for each would cost more than a few more such pages.
    if lib.byte(entry, width - 1) % 16 > 0 then return end
    many = '-100'
  end
  local earlier = lib.call('ZRANGE', key, many, many)[1]
  if earlier and #earlier == width then
    local pages = lib.call('ZRANGE', key, many, '-1')
    lib.call('ZREM', key, unpack(pages))
    lib.write_pages(key, lib.concat(pages), lib.page_bytes(width))
  end
end

-- Adds a sorted run of entries that are not there. Answers whether the line was empty.
function lib.add(key, width, run)
  local last = lib.call('ZRANGE', key, '-1', '-1')[1]
  if last and not lib.less(lib.sub(last, -width), lib.sub(run, 1, width)) then
    lib.add_between(key, width, run)
    return false
  end
  if #run == width then
    lib.append_one(key, width, run)
    return not last
  end
  local size = lib.page_bytes(width)
  if last and #last < size then
    lib.call('ZREM', key, last)
    run = last .. run
  end
  if #run <= size then lib.call('ZADD', key, '0', run) else lib.write_pages(key, run, size) end
  return not last
end

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
      if #kept > 0 then lib.call('ZADD', key, '0', lib.concat(kept)) end
    end
  end
end

-- Takes up to so many of the first entries; answers them in one text.
function lib.pop(key, width, most)
  local taken, left = {}, most * width
  while left > 0 do
    local pages = lib.call('ZPOPMIN', key, left < 2 * lib.PAGE_BYTES and '1' or math.floor(left / lib.PAGE_BYTES))
    if #pages == 0 then break end
    for number = 1, #pages, 2 do
      local page = pages[number]
      if #page > left then
        lib.call('ZADD', key, '0', lib.sub(page, left + 1))
        page = lib.sub(page, 1, left)
      end
      taken[#taken + 1] = page
      left = left - #page
    end
  end
  return lib.concat(taken)
end

-- Numbers as texts: the server takes long to make these of numbers.
lib.NUMBER_TEXTS = {}
function lib.number_text(number)
  local text = lib.NUMBER_TEXTS[number]
  if not text then
    text = tostring(number)
    if number < 1000 then lib.NUMBER_TEXTS[number] = text end
  end
  return text
end

-- Up to so many of the first entries, which stay; the pages that were read; and whether these are all.
function lib.peek(key, width, most)
  if most == 1 then
    local two = lib.call('ZRANGE', key, '0', '1')
    local first = two[1] or ''
    return #first > width and lib.sub(first, 1, width) or first, two, not two[2]
  end
  local left, size = most * width, lib.PAGE_BYTES
  -- One page more than mostly needed, which tells whether there are others.
  local asked = math.floor(left / size) + 1
  local pages = lib.call('ZRANGE', key, '0', lib.number_text(asked))
  local is_all = #pages <= asked
  if #pages > 0 and #pages[1] >= left then
    return #pages[1] == left and pages[1] or lib.sub(pages[1], 1, left), pages, is_all
  end
  local bytes = 0
  for _, page in ipairs(pages) do bytes = bytes + #page end
  while bytes < left and not is_all do
    -- As long as the last one.
    asked = math.ceil((left - bytes) / #pages[#pages])
    local more = lib.call('ZRANGE', key, lib.number_text(#pages), lib.number_text(#pages + asked))
    is_all = #more <= asked
    for _, page in ipairs(more) do
      pages[#pages + 1] = page
      bytes = bytes + #page
    end
  end
  return lib.sub(lib.concat(pages), 1, left), pages, is_all
end

-- Removes so many bytes of the first entries. pages, is_all: as `peek` read them. Answers whether nothing is left; then
-- the key may still be there.
function lib.take_peeked(key, pages, is_all, bytes)
  if #pages[1] == bytes and pages[2] then
    lib.call('ZREM', key, pages[1])
    return false
  end
  local last, left = 0, bytes
  while left > 0 do
    last = last + 1
    left = left - #pages[last]
  end
  if is_all and last == #pages and left == 0 then return true end
  if last == 1 then lib.call('ZREM', key, pages[1]) else lib.call('ZREM', key, unpack(pages, 1, last)) end
  -- In pieces of what was taken: the next claim takes as much, mostly, and then writes nothing but what it removes.
  if left < 0 then lib.write_pages(key, lib.sub(pages[last], left), bytes) end
  return left == 0 and last == #pages and lib.call('EXISTS', key) == 0
end
