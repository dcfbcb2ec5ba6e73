-- SHARE_FORCE_RELEASE
-- KEYS lock, shares, queue          ARGV how many to take away at most
-- Gives {value, its remaining ms, how many are left} of the holder that lapsed last | nil: it was free. What is free is
-- handed on when none is left.
local stands, failure = open()
if failure then return failure end
if not stands then return false end
local last = redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')
local reply = false
if last[1] and tonumber(last[2]) > now then
  local _, label = share_of(last[1])
  reply = { last[1] .. ':' .. label, last[2] - now }
end
local some = redis.call('zrange', KEYS[2], 0, ARGV[1] - 1)
if some[1] then drop(some) end
local left = redis.call('zcard', KEYS[2])
if left == 0 then settle() end
keep(stands)
if reply then reply[3] = left end
return reply
