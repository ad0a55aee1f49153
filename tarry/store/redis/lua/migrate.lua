-- Jobs that came before their task was limited get its lane. There may be a million of them: so not all in one script,
-- and until all have it, claims give one to those that they are about to take.

-- migrate: gives a task's jobs in a line a lane, if they have none.
-- Keys: jobs, laying, due, lines and lanes.
-- Arguments: the task, the line, after which entry of it. No line: all are done.
-- Answer: after which entry to go on, nothing if there is no more.
-- Cost: reads some 2,000 records, and writes those of the task.
function lib.migrate()
  local task, line, after = ARGV[1], ARGV[2], ARGV[3]
  if line == '' then
    lib.call('SREM', lib.MIGRATING, task)
    return ''
  end
  local width, ids = lib.WIDTHS[string.lower(lib.sub(line, 1, 1))] or 24, {}
  local entries, more = lib.entries_after(lib.P .. line, width, after)
  lib.append_ids(ids, width, entries)
  lib.migrate_some(ids, {[task] = true})
  return more and lib.sub(entries, -width) or ''
end

-- The lines in which jobs of the task may have no lane, in the order in which to migrate them, and an empty name for
-- the end. Finished jobs get theirs when they come back: so the cost does not grow with them.
function lib.lines_of_task(task)
  local lines, queues = {}, {}
  for _, field in ipairs(lib.call('HKEYS', lib.COUNTS)) do
    local state, queue, other = lib.byte(field) - 48, lib.split_names(lib.sub(field, 2))
    if other == task and state <= lib.READY then queues[queue] = true end
    -- First, since the scheduled jobs that become ready meanwhile come into the lines that follow.
    if other == task and state == lib.SCHEDULED then lines[1] = 'due' end
  end
  for queue in pairs(queues) do
    for band in pairs(lib.WIDTHS) do
      lines[#lines + 1], lines[#lines + 2] = band .. ':' .. queue, string.upper(band) .. ':' .. queue
    end
  end
  lines[#lines + 1] = ''
  return lines
end

-- Some 2,000 entries of a line after that one, in one text, and whether there are more. after: nothing for the first.
function lib.entries_after(key, width, after)
  local first = after ~= '' and lib.page_with(key, after)
  local pages = lib.call('ZRANGEBYLEX', key, first and '[' .. first or '-', '+', 'LIMIT', 0, 101)
  local more = table.remove(pages, 101) ~= nil
  while after ~= '' and pages[1] and pages[1] ~= '' and not lib.less(after, lib.sub(pages[1], 1, width)) do
    pages[1] = lib.sub(pages[1], width + 1)
  end
  return lib.concat(pages), more
end

-- Answers whether the job had none. entry: of `run`, if it runs.
function lib.migrate_to_lane(id, record, entry)
  local tail = lib.tail_of(record)
  if tail.lane then return false end
  local ready = not entry and lib.byte(record, 1) == lib.READY
  if ready then lib.remove_from_line(lib.line_and_entry(id, record, tail)) end
  tail.lane = ''
  if ready then lib.add_to_line(lib.line_and_entry(id, record, tail)) end
  lib.call('HSET', lib.JOBS, id, lib.replace_tail(record, tail))
  if entry then lib.call('HSET', lib.RUN, id, lib.mark_unusual(entry)) end
  return true
end

function lib.migrate_some(ids, tasks)
  local any, known = false, {}
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    local names = lib.plain_names(record) or lib.tail_of(record).names
    if known[names] == nil then known[names] = tasks[select(2, lib.split_names(names))] or false end
    if known[names] then any = lib.migrate_to_lane(ids[number], record, nil) or any end
  end
  lib.write_lines()
  return any
end

function lib.migrating_tasks()
  local tasks = {}
  for _, task in ipairs(lib.call('SMEMBERS', lib.MIGRATING)) do tasks[task] = true end
  return next(tasks) and tasks
end

-- Gives the first jobs of an open line their lanes. Answers false where there are too many for one script.
function lib.migrate_first(key, width, most, tasks)
  for _ = 1, 3 do
    local ids = {}
    lib.append_ids(ids, width, lib.peek(key, width, math.min(most, lib.BATCH)))
    if not lib.migrate_some(ids, tasks) then return most <= lib.BATCH end
  end
  return false
end
