-- SHARE_INSPECT
-- KEYS lock, shares, queue          ARGV how many holders to tell of at most
-- Gives {} if there is none | {kind, limit, how much is taken, live holders, live waiters, id of the explicit owner or '', and of the
-- holders, those that lapse last first: value, remaining ms, weight}.
-- Of more than 1000 leases that are over, those beyond are still counted; a queue of more than 1000 is given by its length, dead
-- entries included.
local stands, failure = open()
if failure then return failure end
if not stands then return {} end
local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
local over = {}
if not first[1] then
  used = 0
elseif tonumber(first[2]) <= now then
  local oldest = redis.call('zrange', KEYS[2], 0, 999, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    if tonumber(oldest[i + 1]) > now then break end
    over[#over + 1] = oldest[i]
  end
  for _, entry in ipairs(redis.call('hmget', KEYS[1], unpack(over))) do
    used = used - (entry and string.match(entry, '^%d+') or 0)
  end
end
local waiting = redis.call('zcard', KEYS[3])
if waiting > 0 and waiting <= 1000 then
  local entries = redis.call('hmget', KEYS[1], unpack(redis.call('zrange', KEYS[3], 0, -1)))
  waiting = 0
  for _, entry in ipairs(entries) do
    if entry and tonumber(string.match(entry, '^%d+')) > now then waiting = waiting + 1 end
  end
end
local reply = { stands, limit, used, redis.call('zcard', KEYS[2]) - #over, waiting, whose or '' }
local last = redis.call('zrange', KEYS[2], -ARGV[1], -1, 'WITHSCORES')
for i = #last - 1, 1, -2 do
  local owner, remaining = last[i], last[i + 1] - now
  if remaining <= 0 then break end
  local weight, label = share_of(owner)
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3] = owner .. ':' .. label, remaining, weight
end
return reply
