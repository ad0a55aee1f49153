-- Jobs that cost more than one start of a rate. `tarry.store.shared.rate_corrections` has the rules; they are the same
-- here.

-- What the headers of each job with a cost have in them, and the highest cost.
lib.COST_MARK, lib.MAX_COST = '"tarry-cost":', 2147483648

function lib.cost_of(record)
  if not record or not string.find(record, lib.COST_MARK, 1, true) then return 1 end
  local text = lib.tail_of(record).headers or ''
  if not string.find(text, lib.COST_MARK, 1, true) then return 1 end
  local is_json, headers = pcall(cjson.decode, text)
  local cost = is_json and type(headers) == 'table' and headers['tarry-cost']
  local number = type(cost) == 'string' and #cost <= 10 and string.find(cost, '^%d+$') and tonumber(cost)
  return number and number >= 1 and number <= lib.MAX_COST and number or 1
end

-- By lines, the levels with a rate that their jobs count for.
function lib.rated_levels(limits, want, line)
  if not line.rated then
    line.rated = {}
    for _, level in ipairs(line.by.is_rated and lib.levels_of(limits, want.queue, line.task or '', line.lane) or {}) do
      if level.limit.count > 0 then line.rated[#line.rated + 1] = level end
    end
  end
  return line.rated
end

-- Records of candidates by id, so that they are not read again when they start.
lib.read_ahead = {}

function lib.records_to_start(ids)
  if not next(lib.read_ahead) then return lib.fetch(lib.JOBS, ids) end
  local missing, found = {}, {}
  for _, id in ipairs(ids) do
    if not lib.read_ahead[id] then missing[#missing + 1] = id end
  end
  for number, record in ipairs(lib.fetch(lib.JOBS, missing)) do lib.read_ahead[missing[number]] = record end
  for number, id in ipairs(ids) do found[number] = lib.read_ahead[id] end
  return found
end

-- Ids of candidates that a rate counts, false for the others.
function lib.rated_ids(limits, want, given)
  local ids, numbers, width = {}, {}, lib.WIDTHS[want.band]
  for number, line in ipairs(given) do
    ids[number] = false
    if #lib.rated_levels(limits, want, line) > 0 then
      local last = (numbers[line] or 0) * line.width + width
      ids[number], numbers[line] = lib.sub(line.entries, last - 15, last), (numbers[line] or 0) + 1
    end
  end
  return ids
end

function lib.is_any_rated(given)
  local by
  for _, line in ipairs(given) do
    if line.by ~= by and line.by.is_rated then return true end
    by = line.by
  end
  return false
end

-- Costs of candidates by their numbers; nil if all cost one, or no rate counts them.
function lib.costs_of(limits, want, given)
  if not lib.is_any_rated(given) then return nil end
  local rated, ids, at, costs = lib.rated_ids(limits, want, given), {}, {}, nil
  for number, id in ipairs(rated) do
    if id then ids[#ids + 1], at[#at + 1] = id, number end
  end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    lib.read_ahead[ids[number]] = record
    local cost = lib.cost_of(record)
    if cost > 1 then
      costs = costs or {}
      costs[at[number]] = cost
    end
  end
  return costs
end

-- Those of the candidates that rates let start in one claim; counts what they cost beside one. Of each line they are
-- the first: all jobs of a line count for the same levels.
function lib.within_rates(limits, want, given, now)
  local costs = limits and lib.costs_of(limits, want, given)
  if not costs then return given end
  local left, taken = {}, {}
  for number, line in ipairs(given) do
    local levels, has_room, cost = lib.rated_levels(limits, want, line), true, costs[number] or 1
    for _, level in ipairs(levels) do
      left[level] = left[level] or lib.starts_of(level, now)
      has_room = has_room and left[level] > 0
    end
    if has_room then
      for _, level in ipairs(levels) do left[level] = left[level] - cost end
      line.extra_cost = (line.extra_cost or 0) + cost - 1
      taken[#taken + 1] = line
    end
  end
  return taken
end
