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
    for _, name in ipairs(lib.limited_level_names(limits, want.queue, line.task, line.lane)) do
      if lib.limit_of(limits, name).count > 0 then line.rated[#line.rated + 1] = name end
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

function lib.id_in(entry, width) return lib.sub(entry, width - 15, width) end

-- Costs of candidates by id, of those that cost more than one; nil if there are none, or no rate counts them.
function lib.costs_of(limits, want, given)
  local ids, costs, width = {}, nil, lib.WIDTHS[want.band]
  for _, one in ipairs(given) do
    if #lib.rated_levels(limits, want, one[1]) > 0 then ids[#ids + 1] = lib.id_in(one[2], width) end
  end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    lib.read_ahead[ids[number]] = record
    local cost = lib.cost_of(record)
    if cost > 1 then
      costs = costs or {}
      costs[ids[number]] = cost
    end
  end
  return costs
end

-- Those of the candidates that rates let start in one claim; counts what they cost beside one. Of each line they are
-- the first: all jobs of a line count for the same levels.
function lib.within_rates(limits, want, given, now)
  local costs = limits and lib.costs_of(limits, want, given)
  if not costs then return given end
  local left, taken, width = {}, {}, lib.WIDTHS[want.band]
  for _, one in ipairs(given) do
    local names, has_room, cost = lib.rated_levels(limits, want, one[1]), true, costs[lib.id_in(one[2], width)] or 1
    for _, name in ipairs(names) do
      left[name] = left[name] or lib.starts_of(lib.limit_of(limits, name), lib.level_of(name), now)
      has_room = has_room and left[name] > 0
    end
    if has_room then
      for _, name in ipairs(names) do left[name] = left[name] - cost end
      one.cost = cost
      taken[#taken + 1] = one
    end
  end
  return taken
end
