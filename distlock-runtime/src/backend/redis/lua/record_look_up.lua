-- RECORD_LOOK_UP
-- KEYS record          ARGV nothing, or channel or '-' and longest list of channels
-- Gives nil: no record | {0, state, fingerprint, remaining ms or response or reason, note}.
-- With a channel: {0, state, remaining ms} of one in flight, whose end will be told to the channel; nil of any other.
local found = redis.pcall('hmget', KEYS[1], 's', 'p', 'u', 'w')
if found.err then return found end
local state, fingerprint, lease_until, channels = unpack(found)
if not state then return redis.call('exists', KEYS[1]) == 1 and foreign() or false end
if not ARGV[1] then return present(state, fingerprint, tonumber(lease_until or 0), now_ms()) end
if state ~= 'i' then return false end
channels = channels or ''
local _, count = string.gsub(channels, '%S+', '')
if ARGV[1] ~= '-' and count < tonumber(ARGV[2]) and not string.find(' ' .. channels .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
  redis.call('hset', KEYS[1], 'w', channels .. ' ' .. ARGV[1])
end
return { 0, state, digits(math.max(0, tonumber(lease_until) - now_ms())) }
