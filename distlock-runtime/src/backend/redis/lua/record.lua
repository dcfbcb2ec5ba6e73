-- A record is a hash: s state (i in flight, c completed, t tombstone, u unknown), o owner, f fence, p fingerprint,
-- u lease until (ms), k retention of one in flight (ms), a '1' if it was taken over, b response or reason,
-- w channels of those who wait, separated by blanks.
local function now_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function digits(number) return string.format('%.0f', number) end

-- Tells those who wait; nothing depends on it.
local function notify(channels)
  if not channels then return end
  for channel in string.gmatch(channels, '%S+') do
    redis.pcall('publish', channel, 'r' .. string.sub(KEYS[1], -64))
  end
end

-- What stands there: {0, state, fingerprint, remaining ms or response or reason}.
local function present(state, fingerprint, lease_until, now)
  if state == 'i' then return { 0, state, fingerprint, digits(math.max(0, lease_until - now)) } end
  return { 0, state, fingerprint, redis.call('hget', KEYS[1], 'b') or '' }
end
