-- What is asked of jobs and queues; nothing is changed, but for names of queues that are found empty.

-- get: jobs by id.
-- Keys: reads jobs, ends, run.
-- Arguments: ids.
-- Answer: their records, and their entries of `run`.
-- Cost: three reads.
function lib.get() return {lib.fetch_records(ARGV), lib.fetch(lib.RUN, ARGV)} end

-- find: jobs that match, by id.
-- Keys: reads ids, jobs, ends, run, counts, and the line of the first label.
-- Arguments: after which id, limit, states (a text of digits, or nothing), before, the last id or nothing, then pairs
-- of what a job's queue, task or key must be; for `queues` and `tasks`, Lua patterns of which its queue or task must
-- fit one, with NUL between; for `label`, a label that it must have.
-- Answer: ids, records and entries of `run` in turn; and where to go on, nothing if there is no more.
-- Cost: reads at most some 2,000 records; of running jobs alone, all their ids too. Where the counts say that there are
-- none, reads only these.
function lib.find()
  local after, limit, states, before, last = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local found = {}
  local is_narrow = states ~= '' or before or #ARGV > 5
  local patterns = lib.patterns()
  if is_narrow and lib.is_none_counted(states, patterns) then return {found, ''} end
  -- Of the jobs of a label, many may match.
  local line = lib.first_label_line()
  local pages = is_narrow and not line and 33 or math.min(33, math.ceil(limit / 15))
  local function show(id, record, entry)
    if last ~= '' and lib.less(last, id) then return true end
    if record and lib.matches(record, entry, states, before, patterns) then
      found[#found + 1], found[#found + 2], found[#found + 3] = id, record, entry
    end
    return #found == 3 * limit
  end
  local on
  if states == tostring(lib.RUNNING) and lib.call('HLEN', lib.RUN) <= lib.FEW_RUNNING then
    on = lib.walk_running(after, show)
  else
    on = lib.walk(after, pages, show, line)
  end
  return {found, on}
end

-- The line of the first label that is asked for; nil: none is.
function lib.first_label_line()
  for number = 6, #ARGV, 2 do
    if ARGV[number] == 'label' then return lib.P .. 'label:' .. ARGV[number + 1] end
  end
end

-- What stands between the stars of a pattern.
function lib.parts_of(pattern)
  local parts = {}
  for part in string.gmatch(pattern .. '*', '([^*]*)%*') do parts[#parts + 1] = part end
  return parts
end

-- Whether the name is these parts in their order, with any text between two. Each is taken where it comes first: a
-- pattern of Lua tries all the ways to place them, which for many stars takes years.
function lib.is_made_of(parts, name)
  local first, last = parts[1], parts[#parts]
  if #parts == 1 then return name == first end
  local at, to = #first + 1, #name - #last
  if to < #first or lib.sub(name, 1, #first) ~= first or lib.sub(name, to + 1) ~= last then return false end
  for number = 2, #parts - 1 do
    local _, ends = string.find(name, parts[number], at, true)
    if not ends or ends > to then return false end
    at = ends + 1
  end
  return true
end

-- The patterns of queues and of tasks that are asked for; no entry: any.
function lib.patterns()
  local found = {}
  for number = 6, #ARGV, 2 do
    local name = ARGV[number]
    if name == 'queues' or name == 'tasks' then
      found[name] = {}
      for pattern in string.gmatch(ARGV[number + 1], '%Z+') do table.insert(found[name], lib.parts_of(pattern)) end
    end
  end
  return found
end

-- Whether a name fits one of the patterns; nil: any name does.
function lib.fits(patterns, name)
  if not patterns then return true end
  for _, parts in ipairs(patterns) do
    if lib.is_made_of(parts, name) then return true end
  end
  return false
end

-- Whether the counts have no job of these states, and of the queues and the task that are asked for.
function lib.is_none_counted(states, patterns)
  local asked = {}
  for number = 6, #ARGV, 2 do asked[ARGV[number]] = ARGV[number + 1] end
  for _, field in ipairs(lib.call('HKEYS', lib.COUNTS)) do
    local queue, task = lib.split_names(lib.sub(field, 2))
    local is_asked = states == '' or string.find(states, lib.sub(field, 1, 1), 1, true)
    is_asked = is_asked and lib.fits(patterns.queues, queue) and lib.fits(patterns.tasks, task)
    if is_asked and (asked.queue or queue) == queue and (asked.task or task) == task then return false end
  end
  return true
end

-- So many are sorted by id in a few milliseconds. Where more run, each page of all jobs has some of them.
lib.FEW_RUNNING = 5000

-- As `walk`, of the running jobs alone.
function lib.walk_running(after, show)
  local ids, looked = {}, {}
  for _, id in ipairs(lib.call('HKEYS', lib.RUN)) do
    if lib.less(after, id) then ids[#ids + 1] = id end
  end
  lib.sort(ids)
  for number = 1, math.min(#ids, lib.MAX_WALKED) do looked[number] = ids[number] end
  local records, runs = lib.fetch_records(looked), lib.fetch(lib.RUN, looked)
  for number, id in ipairs(looked) do
    if show(id, records[number], runs[number]) then return '' end
  end
  return #ids > #looked and looked[#looked] or ''
end

function lib.matches(record, entry, states, before, patterns)
  local state = entry and lib.RUNNING or lib.byte(record, 1)
  if states ~= '' and not string.find(states, state, 1, true) then return false end
  if before then
    local since = entry and lib.sub(entry, 5, 12) or lib.since_of(record)
    if lib.parse('>I8', since) >= before then return false end
  end
  if #ARGV == 5 then return true end
  local tail = lib.tail_of(record)
  for number = 6, #ARGV, 2 do
    local name, value = ARGV[number], ARGV[number + 1]
    if name == 'label' then
      if not lib.has_label(tail, value) then return false end
    elseif name ~= 'queues' and name ~= 'tasks' and tail[name] ~= value then
      return false
    end
  end
  return lib.fits(patterns.queues, tail.queue) and lib.fits(patterns.tasks, tail.task)
end

-- id_behind: an id so many pages of ids behind another.
-- Keys: reads ids, or the line of a label.
-- Arguments: after which id, how many pages; a label, if only the jobs that have it count.
-- Answer: the last id of the page so many behind the one with that id; nothing if no page comes after it.
-- Cost: two reads, the second of which passes over the pages.
function lib.id_behind()
  local key = ARGV[3] and lib.P .. 'label:' .. ARGV[3] or lib.IDS
  local first = lib.page_with(key, ARGV[1])
  local pages = lib.call('ZRANGEBYLEX', key, first and '[' .. first or '-', '+', 'LIMIT', ARGV[2], 2)
  return pages[2] and lib.sub(pages[1], -16) or ''
end

-- oldest: the earliest due by state, queue and task.
-- Keys: reads ids, jobs, ends, run.
-- Arguments: after which id.
-- Answer: state and names, and the earliest due among them, in turn; and where to go on, nothing if there is no more.
-- Cost: reads some 2,000 records.
function lib.oldest()
  local oldest, found = {}, {}
  local on = lib.walk(ARGV[1], 33, function(_, record, entry)
    local names = lib.plain_names(record) or lib.tail_of(record).names
    local group, due = (entry and lib.RUNNING or lib.byte(record, 1)) .. names, lib.due_of(record)
    local other = oldest[group]
    if not other or lib.parse('>I8', due) < lib.parse('>I8', other) then oldest[group] = due end
  end)
  for group, due in pairs(oldest) do
    found[#found + 1] = group
    found[#found + 1] = due
  end
  return {found, on}
end

lib.MAX_WALKED = 2000

-- Shows each job after that id, until `show` answers true or has seen enough; answers where to go on, nothing if there
-- is no more. pages: of ids, at a time. line: the line of these ids; nil: that of all.
function lib.walk(after, pages, show, line)
  local looked, more = 0, true
  while more and looked < lib.MAX_WALKED do
    local ids
    ids, more = lib.ids_after(after, pages, line)
    local records, runs = lib.fetch_records(ids), lib.fetch(lib.RUN, ids)
    for number, id in ipairs(ids) do
      if show(id, records[number], runs[number]) then return '' end
    end
    looked, after = looked + #ids, ids[#ids] or after
    if #ids == 0 then pages = pages + 1 else pages = math.min(33, 4 * pages) end
  end
  return more and after or ''
end

-- The ids after that one, of so many pages, and whether there are more. line: as `walk` has it.
function lib.ids_after(after, pages, line)
  local key = line or lib.IDS
  local first = lib.page_with(key, after)
  local ids, from = {}, first and '[' .. first or '-'
  local found = lib.call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, pages + 1)
  for number = 1, math.min(#found, pages) do
    local page = found[number]
    for at = 1, #page, 16 do
      local id = lib.sub(page, at, at + 15)
      if number > 1 or lib.less(after, id) then ids[#ids + 1] = id end
    end
  end
  return ids, #found > pages
end

-- expiring: finished jobs whose keep_until lies between two moments, by that and id.
-- Keys: reads finished and its lines, jobs, ends.
-- Arguments: the first moment, the one after the last, limit.
-- Answer: ids, records and nothing in place of entries of `run`, in turn.
-- Cost: two reads a queue, and two of all jobs found.
function lib.expiring()
  local limit = ARGV[3] + 0
  -- As long as entries are.
  local first, last = lib.pack('>I8', ARGV[1] + 0) .. ('\0'):rep(16), lib.pack('>I8', ARGV[2] + 0) .. ('\0'):rep(16)
  local entries, ids, found = {}, {}, {}
  for _, queue in ipairs(lib.call('SMEMBERS', lib.FINISHED)) do
    lib.append_between(entries, lib.finished_line(queue), first, last, limit)
  end
  lib.sort(entries)
  for number = 1, math.min(#entries, limit) do ids[number] = lib.sub(entries[number], 9) end
  for number, record in ipairs(lib.fetch_records(ids)) do
    found[3 * number - 2], found[3 * number - 1], found[3 * number] = ids[number], record, false
  end
  return found
end

-- Adds the first entries of a line from one to before another, so many at most.
function lib.append_between(entries, key, first, last, limit)
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

-- queues: which queues there are.
-- Keys: queues, paused, and whether lines are there.
-- Arguments: none.
-- Answer: the queues that have ready jobs, and those that are paused.
-- Cost: one read a queue.
function lib.queues()
  local ready = {}
  for _, queue in ipairs(lib.call('SMEMBERS', lib.QUEUES)) do
    local keys = {}
    for band in pairs(lib.WIDTHS) do
      keys[#keys + 1] = lib.open_line(queue, band)
      keys[#keys + 1] = lib.open_line(queue, band, true)
      keys[#keys + 1] = lib.tasks_key(queue, band)
    end
    if lib.call('EXISTS', unpack(keys)) > 0 then
      ready[#ready + 1] = queue
    else
      lib.call('SREM', lib.QUEUES, queue)
    end
  end
  return {ready, lib.call('SMEMBERS', lib.PAUSED)}
end

-- backlog: how many jobs could run now.
-- Keys: reads paused, queues, due, jobs, lines and lanes.
-- Arguments: now, how many to count at most, 1 for all queues, else 0 and their names.
-- Answer: how many, and the earliest due among them.
-- Cost: as many entries as it counts, and a few reads a queue.
function lib.backlog()
  local now, most, all = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] == '1'
  local names, asked = {}, {}
  for number = 4, #ARGV do names[number - 3] = ARGV[number] end
  if all then names = lib.call('SMEMBERS', lib.QUEUES) end
  for _, queue in ipairs(names) do asked[queue] = true end
  local paused = {}
  for _, queue in ipairs(lib.call('SMEMBERS', lib.PAUSED)) do paused[queue] = true end
  local found = {count = 0, oldest = now, most = most}
  lib.count_due(found, now, function(queue) return not paused[queue] and (all or asked[queue]) end)
  for queue in pairs(asked) do
    for band in pairs(lib.WIDTHS) do
      if found.count < most and not paused[queue] then
        lib.count_line(found, lib.open_line(queue, band, true), lib.WIDTHS[band], 0)
        lib.count_line(found, lib.open_line(queue, band), lib.WIDTHS[band], 0)
        lib.count_lanes(found, queue, band)
      end
    end
  end
  return {found.count, found.oldest}
end

-- Counts scheduled jobs whose time has come, of those queues.
function lib.count_due(found, now, is_asked)
  local entries, ids, dues = lib.peek(lib.DUE, 24, found.most), {}, {}
  for at = 1, #entries, 24 do
    local due = lib.parse('>I8', entries, at)
    if due > now then break end
    ids[#ids + 1], dues[#dues + 1] = lib.sub(entries, at + 8, at + 23), due
  end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    if is_asked(lib.tail_of(record).queue) then
      found.count, found.oldest = found.count + 1, math.min(found.oldest, dues[number])
    end
  end
end

-- Counts what is in a line. longer: by how many bytes its entries are longer than the band's.
function lib.count_line(found, key, width, longer)
  local entries = lib.peek(key, width + longer, found.most - found.count)
  for at = width - 23, #entries, width + longer do
    found.count, found.oldest = found.count + 1, math.min(found.oldest, (lib.parse('>I8', entries, at)))
  end
end

-- Each lane that is known by name has something in it, so the count bounds the cost.
function lib.count_lanes(found, queue, band)
  for _, task in ipairs(lib.call('ZRANGE', lib.tasks_key(queue, band), 0, found.most)) do
    for _, lane in ipairs(lib.call('ZRANGE', lib.lanes_key(queue, band, task), 0, found.most)) do
      if found.count >= found.most then return end
      lib.count_line(found, lib.lane_line(queue, band, task, lane), lib.WIDTHS[band], 1)
    end
  end
end

-- oldest_waiting: jobs of a queue that wait: the ready ones by band, the lowest first, and by due; then the scheduled.
-- Keys: reads due, jobs, lines and lanes.
-- Arguments: queue, limit.
-- Answer: ids, records and nothing in place of entries of `run`, in turn.
-- Cost: of each line and lane as many entries as the limit, ten times as many where priorities differ; if these are too
-- few, all that are scheduled.
function lib.oldest_waiting()
  local queue, limit, ids, found = ARGV[1], ARGV[2] + 0, {}, {}
  for _, band in ipairs({'l', 'n', 'h'}) do
    if #ids < limit then lib.append_oldest(ids, lib.oldest_of_band(queue, band, limit), limit) end
  end
  local from, page = 0, 1
  while #ids < limit and page do
    page, from = lib.call('ZRANGE', lib.DUE, from, from)[1], from + 1
    if page then lib.append_oldest(ids, lib.scheduled_of(queue, page), limit) end
  end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    found[3 * number - 2], found[3 * number - 1], found[3 * number] = ids[number], record, false
  end
  return found
end

function lib.append_oldest(ids, entries, limit)
  for number = 1, math.min(#entries, limit - #ids) do ids[#ids + 1] = lib.sub(entries[number], 9) end
end

-- Due and id of the first ready jobs of a band, sorted.
function lib.oldest_of_band(queue, band, limit)
  local width, most, entries = lib.WIDTHS[band], band == 'n' and limit or 10 * limit, {}
  local function add(key, longer)
    local line = lib.peek(key, width + longer, most)
    for at = width - 23, #line, width + longer do entries[#entries + 1] = lib.sub(line, at, at + 23) end
  end
  add(lib.open_line(queue, band), 0)
  add(lib.open_line(queue, band, true), 0)
  for _, task in ipairs(lib.call('ZRANGE', lib.tasks_key(queue, band), 0, -1)) do
    for _, lane in ipairs(lib.call('ZRANGE', lib.lanes_key(queue, band, task), 0, limit)) do
      add(lib.lane_line(queue, band, task, lane), 1)
    end
  end
  lib.sort(entries)
  return entries
end

-- Those of a page of scheduled jobs that are for the queue.
function lib.scheduled_of(queue, page)
  local ids, entries = {}, {}
  for at = 1, #page, 24 do ids[#ids + 1] = lib.sub(page, at + 8, at + 23) end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    if record and lib.tail_of(record).queue == queue then
      entries[#entries + 1] = lib.sub(page, 24 * number - 23, 24 * number)
    end
  end
  return entries
end
