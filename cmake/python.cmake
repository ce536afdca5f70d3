# SPDX-License-Identifier: Apache-2.0
# What goes into the Python package: pip installs this component alone (pyproject.toml), `cmake --install` leaves it out.
if(SKBUILD)
  install(FILES $<TARGET_FILE:ironmule_shared> DESTINATION ironmule RENAME libironmule${CMAKE_SHARED_LIBRARY_SUFFIX} COMPONENT python
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  install(PROGRAMS $<TARGET_FILE:ironmule> DESTINATION ironmule/bin COMPONENT python)
endif()
