-- SHARE_INSPECT
-- KEYS lock, shares, queue          Gives {value or nil, its remaining ms, live waiters}, of the holder that lapses last; of an
-- explicit owner also how many holds it has.
-- A queue of more than 1000 is given by its length, dead entries included.
local stands, failure = open()
if failure then return failure end
if not stands then return { false, 0, 0 } end
local last = redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')
local holder, remaining = false, 0
if last[1] and tonumber(last[2]) > now then
  local _, label = share_of(last[1])
  holder, remaining = last[1] .. ':' .. label, last[2] - now
end
local waiting = redis.call('zcard', KEYS[3])
if waiting > 0 and waiting <= 1000 then
  local entries = redis.call('hmget', KEYS[1], unpack(redis.call('zrange', KEYS[3], 0, -1)))
  waiting = 0
  for _, entry in ipairs(entries) do
    if entry and tonumber(string.match(entry, '^%d+')) > now then waiting = waiting + 1 end
  end
end
if not owned then return { holder, remaining, waiting } end
local lapsed = 0
local holds = redis.call('zrange', KEYS[2], 0, 999, 'WITHSCORES')
while lapsed < #holds / 2 and tonumber(holds[2 * lapsed + 2]) <= now do lapsed = lapsed + 1 end
return { holder, remaining, waiting, redis.call('zcard', KEYS[2]) - lapsed }
