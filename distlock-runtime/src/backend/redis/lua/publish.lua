-- Tells a channel; of a Cluster, where the channel has a slot, those who listen on this server. How many heard it, or an error table.
local function publish(channel, message)
  return redis.pcall(string.find(channel, '!{', 1, true) and 'spublish' or 'publish', channel, message)
end
