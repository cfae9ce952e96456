-- What `wrk` sends: the turns of the file KW_TURNS, and a last line that the benchmark reads.
local bodies, users, n = {}, {}, 0
for line in io.lines(os.getenv("KW_TURNS")) do
  local tab = line:find("\t")
  users[#users + 1] = line:sub(1, tab - 1)
  bodies[#bodies + 1] = line:sub(tab + 1)
end
local mode, run = os.getenv("KW_MODE"), os.getenv("KW_RUN")
request = function()
  n = n + 1
  local body = bodies[(n - 1) % #bodies + 1]:gsub("RUN", run .. "x" .. n)
  return wrk.format("POST", "/v1/chat/completions", {
    ["Authorization"] = "Bearer " .. os.getenv("KW_TOKEN"), ["Content-Type"] = "application/json",
    ["X-Keepworth-User"] = users[(n - 1) % #users + 1], ["X-Keepworth-Memory"] = mode}, body)
end
done = function(summary, latency, requests)
  io.write(string.format("DONE %d %d %d %d %d %d %.1f %.1f\n", summary.requests, summary.duration,
    summary.errors.status, summary.errors.connect + summary.errors.read + summary.errors.write,
    summary.errors.timeout, summary.bytes, latency:percentile(50), latency:percentile(95)))
end
