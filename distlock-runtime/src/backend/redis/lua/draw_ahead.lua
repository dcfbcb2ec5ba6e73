-- Draws fencing tokens where a replica may take over, whose counter may be stale without being small: the first of the
-- block lies above the last one and above the floor, milliseconds since 1970 * 1024. An error table if that fails.
-- `count` is nil for one.
local function draw(counter, count)
  local last = redis.pcall('get', counter)
  if type(last) == 'table' then return last end
  local time = redis.pcall('time')
  if time.err then return time end
  local floor = (time[1] * 1000 + math.floor(time[2] / 1000)) * 1024
  last = math.max(tonumber(last or 0) or 0, floor)
  if not (last <= 9e15) then
    return { err = 'ERR the fencing counter ' .. counter .. ' is beyond 9e15' }
  end
  local written = redis.pcall('set', counter, string.format('%.0f', last + (count or 1)))
  if written.err then return written end
  return last + 1
end
