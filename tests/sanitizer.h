// Whether this build has the address sanitizer, which takes twenty terabytes of addresses: programs under a limit of
// them, and in an emulator, do not start then.
#pragma once

namespace mxt::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace mxt::test
