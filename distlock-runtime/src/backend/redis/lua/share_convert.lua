-- SHARE_CONVERT
-- KEYS lock, shares, queue, counter          ARGV owner, weight to have, ttl ms, how many tokens or 0 to carry the last one
-- Gives the token | {a holder's value, its remaining ms, 0}: others read or wait, nothing changed.
-- Repeat: the same again.
local stands, failure = open()
if failure then return failure end
if not stands then return { err = 'NOTHELD the lease to convert is gone' } end
settle()
if stands ~= 'rw' then
  keep(stands)
  return conflict('another kind of lock (' .. stands .. ')')
end
local deadline = deadline_of(ARGV[1])
if not deadline then
  keep(stands)
  return { err = 'NOTHELD the lease to convert is gone' }
end
local weight, label = share_of(ARGV[1])
local more = ARGV[2] - weight
if more > 0 and (redis.call('zcard', KEYS[2]) > 1 or redis.call('exists', KEYS[3]) == 1) then
  local reply = in_the_way()
  keep(stands)
  reply[3] = 0
  return reply
end
local token
if ARGV[4] == '0' then token = carry(KEYS[4]) else token = draw(KEYS[4], ARGV[4]) end
if type(token) ~= 'table' then
  hold(ARGV[1], tonumber(ARGV[2]), label, math.max(deadline, now + ARGV[3]))
  used = used - weight
  settle()
end
keep(stands)
return token
