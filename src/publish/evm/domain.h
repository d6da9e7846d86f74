// The domain of an agent's service, proven to be the agent's (EIP-8004, "Endpoint Domain Verification"): it serves
// /.well-known/agent-registration.json, whose `registrations` name the agent. Which domain is not of the run:
// MINDXTRAIN_AGENT_URL names it when the run is published.
#pragma once

#include <memory>
#include <optional>

#include "net/url.h"
#include "publish/steps.h"

namespace mxt::publish {

inline constexpr const char* kDomainVariable = "MINDXTRAIN_AGENT_URL";
inline constexpr const char* kDomainFile = "agent-registration.json";  // in the run's folder: what is to be served

// The variable's "https://agent.example" or "agent.example:8443" as the address of its root; absent where it is not
// set. kBadInput, naming it, for anything else: a path, a password, and http, which proves nothing, but of this
// machine.
std::optional<net::Url> domain_root(const Surroundings& around);

// The variable must be set, and settings.identity_registry be there. Writes RUN/agent-registration.json, then reads
// what the domain serves. Result: {"domain", "url", "agent_id", "agent_registry"}. kMissing where it is not served yet,
// with what to do; kVerifyFailed where what is served names another agent.
std::unique_ptr<Step> domain_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
