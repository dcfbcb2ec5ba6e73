-- The queue of one lock: a sorted set of owners in order of arrival, and a hash
-- owner -> "<live until, ms> <claim, ms; f: asked fairly> <channel or -> <lock value>".
local function now_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function leave(queue, waiters, owner)
  redis.call('zrem', queue, owner)
  redis.call('hdel', waiters, owner)
end

-- The waiter at this place (0 is the head): owner, then if it is still alive: claim, channel, value, until when it lives, and
-- 'f' if it asked fairly.
local function waiter_at(queue, waiters, place, now)
  local owner = redis.call('zrange', queue, place, place)[1]
  if not owner then return nil end
  local entry = redis.call('hget', waiters, owner)
  if entry then
    local live, claim, fair, channel, value = string.match(entry, '^(%d+) (%d+)(f?) (%S+) (.*)$')
    if live and tonumber(live) >= now then return owner, claim, channel, value, live, fair end
  end
  return owner
end
