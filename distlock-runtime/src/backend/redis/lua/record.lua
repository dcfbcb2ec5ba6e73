-- A record is a hash: s state (i in flight, c completed, t tombstone, u unknown), o owner, f fence, p fingerprint,
-- u lease until (ms), k retention of one in flight (ms), a '1' if it was taken over, b response or reason,
-- w channels of those who wait, separated by blanks, m what it says to people: scope or -, trace or -, label.
local function now_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- One that was damaged counts as 0: it mustn't fail a call about other records too.
local function number(text) return tonumber(text or 0) or 0 end

-- A hash without a state is no miss: it isn't ours, or was damaged.
local function foreign() return redis.error_reply('WRONGTYPE there is something else than a record') end

local function digits(number) return string.format('%.0f', number) end

-- Tells those who wait; nothing depends on it.
local function notify(channels)
  if not channels then return end
  for channel in string.gmatch(channels, '%S+') do
    publish(channel, 'r' .. string.sub(KEYS[1], -64))
  end
end

-- What stands there: {0, state, fingerprint, remaining ms or response or reason, note}.
local function present(state, fingerprint, lease_until, now)
  local rest = redis.call('hmget', KEYS[1], 'm', 'b')
  if state == 'i' then rest[2] = digits(math.max(0, lease_until - now)) end
  return { 0, state, fingerprint, rest[2] or '', rest[1] or '' }
end
