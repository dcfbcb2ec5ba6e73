-- Draws fencing tokens from the slot's counter: the first of the block, or an error table. `count` is nil for one.
-- A missing or small counter (lost, or never there) is raised to the floor, milliseconds since 1970 * 1024, which
-- lies above every token that was drawn before unless the clock went back. '%.0f': tostring would lose digits.
local function draw(counter, count)
  local last
  if count then last = redis.pcall('incrby', counter, count) else last = redis.pcall('incr', counter) end
  if type(last) == 'table' then return last end
  if last < 1e15 then
    local time = redis.pcall('time')
    if time.err then return time end
    last = (time[1] * 1000 + math.floor(time[2] / 1000)) * 1024 + (count or 1)
    local written = redis.pcall('set', counter, string.format('%.0f', last))
    if written.err then return written end
  elseif last > 9e15 then
    return { err = 'ERR the fencing counter ' .. counter .. ' is beyond 9e15' }
  end
  return last - (count or 1) + 1
end
